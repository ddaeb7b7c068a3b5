//! Mounts of this process: `/proc/self/mountinfo`, proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount point.
    pub point: PathBuf,
    /// Type of the file system, such as `fuse.kumi`.
    pub kind: String,
    /// Source of the mount, in a form that depends on the type.
    pub source: OsString,
}

/// Returns all mounts in this process's mount namespace. A later mount covers an earlier mount at
/// the same point.
///
/// # Errors
/// As reading a file.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(std::fs::read("/proc/self/mountinfo")?
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Returns the topmost mount at exactly this point.
///
/// # Errors
/// As reading a file.
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(mounts()?.into_iter().rev().find(|mount| mount.point == point))
}

/// Parses a line: `36 35 98:0 /root /point options optional... - type source super`
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = fields.nth(4)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8(rest.next()?.to_vec()).ok()?;
    let source = OsString::from_vec(unescaped(rest.next()?));
    Some(Mount { point: OsString::from_vec(unescaped(point)).into(), kind, source })
}

/// Decodes escapes: space, tab, newline and backslash are written as a backslash with three octal
/// digits.
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
