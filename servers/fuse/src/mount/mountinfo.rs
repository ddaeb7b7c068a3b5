//! What is mounted where: `/proc/self/mountinfo`, proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// The file system's type, as `fuse.kumi`.
    pub kind: String,
    /// What is mounted there, as its type calls it.
    pub source: OsString,
}

/// All mounts that this process sees, the later ones over the earlier ones.
///
/// # Errors
/// As reading a file.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(std::fs::read("/proc/self/mountinfo")?
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// What is mounted at exactly that place, the uppermost.
///
/// # Errors
/// As reading a file.
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(mounts()?.into_iter().rev().find(|mount| mount.point == point))
}

/// `36 35 98:0 /root /point options optional... - type source super`
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = fields.nth(4)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8(rest.next()?.to_vec()).ok()?;
    let source = OsString::from_vec(unescaped(rest.next()?));
    Some(Mount { point: OsString::from_vec(unescaped(point)).into(), kind, source })
}

/// Space, tab, newline and backslash are three octal digits behind a backslash.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
