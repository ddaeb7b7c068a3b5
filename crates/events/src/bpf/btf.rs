//! Where the running kernel keeps what the program reads: a look into its type information.
//!
//! Source: Documentation/bpf/btf.rst. Only what it takes to find a member of a struct by name.

use std::fs;
use std::sync::OnceLock;

use crate::Refused;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The offset in bytes of `task_struct.__state`. The first call that finds it reads about 5 MB, some milliseconds.
pub(super) fn state_offset() -> Result<u32, Refused> {
    static FOUND: OnceLock<u32> = OnceLock::new();
    if let Some(offset) = FOUND.get() {
        return Ok(*offset);
    }
    let offset = read_offset()?;
    Ok(*FOUND.get_or_init(|| offset))
}

fn read_offset() -> Result<u32, Refused> {
    let bytes = fs::read(VMLINUX).map_err(|error| {
        Refused::new(
            format!("the kernel's type information cannot be read: {VMLINUX}: {}", super::sys::errno(&error)),
            "a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian 11, Ubuntu 20.10, Fedora 31 and newer have it), and /sys mounted",
        )
    })?;
    member_offset(&bytes, b"task_struct", b"__state").ok_or_else(|| {
        Refused::new(format!("no task_struct.__state in {VMLINUX}"), "Linux 5.15 or newer with CONFIG_DEBUG_INFO_BTF=y")
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The first struct of that name that has such a member, in whole bytes.
fn member_offset(bytes: &[u8], structure: &[u8], member: &[u8]) -> Option<u32> {
    const MAGIC: u32 = 0xeb9f;
    // magic u16, version u8, flags u8, hdr_len, type_off, type_len, str_off, str_len.
    if word(bytes, 0)? & 0xffff != MAGIC {
        return None;
    }
    let header = word(bytes, 4)? as usize;
    let section = |at: usize| {
        let start = header.checked_add(word(bytes, at)? as usize)?;
        bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
    };
    let (types, names) = (section(8)?, section(16)?);
    let is = |name: u32, wanted: &[u8]| {
        let text = names.get(name as usize..).unwrap_or_default();
        text.starts_with(wanted) && text.get(wanted.len()) == Some(&0)
    };
    let mut at = 0;
    while at < types.len() {
        let (name, info) = (word(types, at)?, word(types, at + 4)?);
        at += 12;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let length = match kind {
            // INT, VAR, DECL_TAG
            1 | 14 | 17 => 4,
            // ARRAY
            3 => 12,
            // STRUCT, UNION, DATASEC, ENUM64
            4 | 5 | 15 | 19 => 12 * count,
            // ENUM, FUNC_PROTO
            6 | 13 => 8 * count,
            // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
            2 | 7..=12 | 16 | 18 => 0,
            // A kind of the future: its length is not known, so what follows cannot be found.
            _ => return None,
        };
        if kind == 4 && is(name, structure) {
            for entry in (at..at + length).step_by(12) {
                if is(word(types, entry)?, member) {
                    // With the top bit of info, a bit field's size shares the word.
                    let bits = word(types, entry + 8)? & if info >> 31 == 1 { 0x00ff_ffff } else { u32::MAX };
                    return bits.is_multiple_of(8).then_some(bits / 8);
                }
            }
        }
        at += length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"\0other\0task_struct\0__state\0flags\0__state_too\0";

    fn name(text: &str) -> u32 {
        let text = format!("\0{text}\0");
        NAMES.windows(text.len()).position(|w| w == text.as_bytes()).expect("a name") as u32 + 1
    }

    fn file(types: &[u32]) -> Vec<u8> {
        let length = types.len() as u32 * 4;
        let header = [0x1_eb9f, 24, 0, length, length, NAMES.len() as u32];
        let words = header.iter().chain(types).flat_map(|w| w.to_le_bytes());
        words.chain(NAMES.iter().copied()).collect()
    }

    fn structure(text: &str, flag: u32, members: &[(&str, u32)]) -> Vec<u32> {
        let mut words = vec![name(text), flag << 31 | 4 << 24 | members.len() as u32, 64];
        members.iter().for_each(|(text, bits)| words.extend([name(text), 1, *bits]));
        words
    }

    #[test]
    fn the_member_is_found_behind_other_kinds_and_other_names() {
        // An int, an enum of two, an array, a pointer; then a struct with the member but another name.
        let mut types = vec![name("flags"), 1 << 24, 4, 32, name("flags"), 6 << 24 | 2, 4, 0, 0, 0, 1];
        types.extend([0, 3 << 24, 0, 1, 1, 8, 0, 2 << 24, 1]);
        types.extend(structure("other", 0, &[("__state", 8)]));
        types.extend(structure("task_struct", 0, &[("flags", 0), ("__state_too", 32), ("__state", 192)]));
        assert_eq!(member_offset(&file(&types), b"task_struct", b"__state"), Some(24));
    }

    #[test]
    fn with_bit_fields_the_offset_is_the_low_bits_and_a_bit_field_itself_is_refused() {
        let whole = structure("task_struct", 1, &[("flags", 1 << 24), ("__state", 64)]);
        assert_eq!(member_offset(&file(&whole), b"task_struct", b"__state"), Some(8));
        let part = structure("task_struct", 1, &[("__state", 3 << 24 | 65)]);
        assert_eq!(member_offset(&file(&part), b"task_struct", b"__state"), None);
    }

    #[test]
    fn broken_files_are_none() {
        let whole = file(&structure("task_struct", 0, &[("__state", 64)]));
        for length in 0..whole.len() {
            assert_eq!(member_offset(&whole[..length], b"task_struct", b"__state"), None, "{length} bytes");
        }
        let strange = file(&[0, 30 << 24, 0]);
        assert_eq!(member_offset(&strange, b"task_struct", b"__state"), None);
    }
}
