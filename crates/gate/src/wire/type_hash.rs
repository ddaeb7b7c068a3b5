//! The hash of a gate's types in the handshake, so that two sides with different types are told
//! apart before they misread each other: a literal `2` is an `i32` where nothing else determines
//! its type, and an `i32` has other bytes than a `u32`.
//!
//! Only types whose name is the same in every program can be compared: numbers, `bool`, `char`,
//! `String`, and tuples, arrays, `Vec`, `Option` and `Result` of these. Any other, an application's
//! own for instance, stands for nothing, and is taken for any.

/// Names as `type_name` has them, and as they are compared: what postcard encodes alike is alike.
const KNOWN: [(&str, &str); 6] = [
    ("alloc::string::String", "String"),
    ("alloc::vec::Vec", "Vec"),
    ("core::option::Option", "Option"),
    ("core::result::Result", "Result"),
    ("usize", "u64"),
    ("isize", "i64"),
];

/// The hash for requests `Q` and replies `R`; 0: unknown.
pub(crate) fn of<Q, R>() -> u64 {
    let mut name = std::any::type_name::<fn(Q) -> R>().to_owned();
    for (full, short) in KNOWN {
        name = name.replace(full, short);
    }
    if name.contains("::") {
        return 0;
    }
    // FNV-1a: it only has to distinguish. Never 0.
    name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    }) | 1
}

/// Whether two hashes can stand for the same types.
pub(crate) fn agree(one: u64, other: u64) -> bool {
    one == other || one == 0 || other == 0
}

#[cfg(test)]
mod tests;
