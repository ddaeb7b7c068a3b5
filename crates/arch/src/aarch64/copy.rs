//! Copies of memory that another thread or process may write at the same time.

use core::arch::asm;

/// Copies `len` bytes by pairs of words. The loops are in assembly: their accesses are outside the
/// language's memory model, as those of the other process are. The compiler has to assume of them
/// whatever Rust code could do, for instance a loop over relaxed atomic bytes. They order no other
/// access: callers publish by a Release store, and read after an Acquire load.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and the two do not overlap. One of them
/// may be shared memory that others write.
#[inline]
pub unsafe fn shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: reads and writes what the caller vouches for, and memory only. Races: see above.
    unsafe {
        asm!(
            "subs {left}, {left}, #32",
            "b.lo 3f",
            "2:",
            "ldp {a}, {b}, [{from}], #16",
            "ldp {c}, {d}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "stp {c}, {d}, [{to}], #16",
            "subs {left}, {left}, #32",
            "b.hs 2b",
            "3:",
            "adds {left}, {left}, #32",
            "b.eq 5f",
            "4:",
            "ldrb {a:w}, [{from}], #1",
            "strb {a:w}, [{to}], #1",
            "subs {left}, {left}, #1",
            "b.ne 4b",
            "5:",
            left = inout(reg) len => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack)
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_length_is_copied_and_nothing_else_is_written() {
        let from: Vec<u8> = (0..200u32).map(|i| (i * 7 + 1) as u8).collect();
        for len in 0..150 {
            for shift in [0, 1, 7] {
                let mut to = vec![0u8; 220];
                // SAFETY: both vectors are longer than that.
                unsafe {
                    super::shared(to.as_mut_ptr().add(16), from.as_ptr().add(shift), len);
                }
                assert_eq!(to[16..16 + len], from[shift..shift + len], "{len}");
                assert!(to[..16].iter().chain(&to[16 + len..]).all(|byte| *byte == 0), "{len}");
            }
        }
    }
}
