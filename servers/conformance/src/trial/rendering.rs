//! Results of calls as text. Two file systems with the same behaviour produce the same text.

use std::fmt::Write as _;
use std::os::fd::AsFd;

use nix::errno::Errno as Named;
use rustix::fs::{FileType, Stat};
use rustix::io::{Errno, Result};

/// The name of an error number: `ENOENT`.
#[must_use]
pub fn errno_name(errno: Errno) -> String {
    format!("{:?}", Named::from_raw(errno.raw_os_error()))
}

/// A name, shortened, with unprintable bytes escaped.
pub(super) fn shown(name: impl AsRef<[u8]>) -> String {
    let name = name.as_ref();
    let text = name.escape_ascii().to_string();
    if text.len() > 60 { format!("{}...({} bytes)", &text[..20], name.len()) } else { text }
}

/// Type, mode, links, owner, and size or device of a file.
pub(super) fn describe(stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mut text = format!(
        "{kind:?} {:04o} links {} uid {} gid {}",
        stat.st_mode & 0o7777,
        stat.st_nlink,
        stat.st_uid,
        stat.st_gid
    );
    match kind {
        // The size of a directory depends on the file system.
        FileType::Directory => {}
        FileType::CharacterDevice | FileType::BlockDevice => {
            let _ = write!(
                text,
                " device {},{}",
                rustix::fs::major(stat.st_rdev),
                rustix::fs::minor(stat.st_rdev)
            );
        }
        _ => {
            let _ = write!(text, " size {}", stat.st_size);
        }
    }
    text
}

/// Bytes with runs abbreviated, for example `10000xx`; a checksum if the result would be too long.
pub(super) fn runs(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes:", bytes.len());
    for (n, run) in bytes.chunk_by(|a, b| a == b).enumerate() {
        if n == 24 {
            let sum = bytes
                .iter()
                .fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            let _ = write!(text, " ... sum {sum:x}");
            break;
        }
        let byte = run[0..1].escape_ascii();
        let _ = if run.len() == 1 {
            write!(text, " {byte}")
        } else {
            write!(text, " {}x{byte}", run.len())
        };
    }
    text
}

/// The sorted names in a directory, each with its type.
pub(super) fn names(directory: impl AsFd) -> Result<Vec<String>> {
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut listing = rustix::fs::RawDir::new(directory, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(listed) = listing.next() {
        let listed = listed?;
        names.push(format!("{}:{:?}", shown(listed.file_name().to_bytes()), listed.file_type()));
    }
    names.sort();
    Ok(names)
}
