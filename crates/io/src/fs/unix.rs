//! Unix extensions: `std::os::unix::fs`.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::call::call;

pub use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};

/// Creates a symbolic link.
///
/// # Errors
/// As symlink(2).
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    call(|| std::os::unix::fs::symlink(original, link))
}

/// Changes owner and group, following links.
///
/// # Errors
/// As chown(2).
pub fn chown<P: AsRef<Path>>(path: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    call(|| std::os::unix::fs::chown(path, uid, gid))
}

/// Changes owner and group of a link itself.
///
/// # Errors
/// As lchown(2).
pub fn lchown<P: AsRef<Path>>(path: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    call(|| std::os::unix::fs::lchown(path, uid, gid))
}

/// Changes owner and group of an open file.
///
/// # Errors
/// As fchown(2).
pub fn fchown<F: AsFd>(file: F, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    call(|| std::os::unix::fs::fchown(file, uid, gid))
}

/// Changes the process's root directory, for all microprocesses.
///
/// # Errors
/// As chroot(2).
pub fn chroot<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(|| std::os::unix::fs::chroot(path))
}
