//! Files and directories: `std::fs`, with `use std` changed to `use kumihimo`.
//!
//! What differs from std, and what holds for all calls here:
//!
//! - **What blocks what**: files on a disk have no readiness. A call that has to wait for the
//!   disk sleeps in the kernel with its kernel thread; the event source tells, and the virtual
//!   processor goes on under another one. Without an event source (`off`) reads of what is in
//!   memory are plain calls, and all others go through [`thread::blocking`]. What surely waits for
//!   long (`sync_all`, locks, `copy`, `remove_dir_all`) always does. From a plain std thread
//!   everything blocks that thread, as in std.
//! - **FIFOs, terminals, devices** opened as a [`File`] are waited for by readiness, as sockets
//!   are: the deadline of a scope ends the wait with `TimedOut`. Opening a FIFO waits for the other
//!   end as in std; neither deadline nor cancellation ends that. Where the kernel knows no attempt
//!   without waiting (FIFOs, terminals), a write takes at most 4,096 bytes at a time.
//! - **Cancellation**: every call is a cancellation point before it begins, and where it waits
//!   for readiness. No buffer is in the kernel's hands for longer than the call lasts, so nothing
//!   is left behind; what has begun at a disk is completed. It never shows as
//!   `ErrorKind::Interrupted`; signals do not either: interrupted calls are repeated.
//! - **Closing** is as in std: dropping the last handle closes, which may wait (a network file
//!   system); errors are lost, so `sync_all` first.
//! - `std::path::Path`'s own methods (`exists`, `metadata`) are std's plain calls.
//!
//! Source: the manual pages open(2), preadv2(2), copy_file_range(2), fifo(7).
//!
//! [`thread::blocking`]: kumihimo_runtime::thread::blocking

mod call;
mod copy;
mod dir;
mod file;
pub mod unix;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use call::{call, long_call};

pub use copy::copy;
pub(crate) use copy::copy_ranges;
pub use dir::{DirBuilder, DirEntry, ReadDir};
pub use file::{File, OpenOptions, TryLockError};
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};

/// All of a file.
///
/// # Errors
/// As open(2) and read(2).
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_whole(&mut bytes)?;
    Ok(bytes)
}

/// All of a file, as text.
///
/// # Errors
/// As open(2) and read(2); `InvalidData` if it is not UTF-8.
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Makes `contents` all of a file; creates it if need be. Cut short by an error or a cancellation,
/// the file has a part of it.
///
/// # Errors
/// As open(2) and write(2).
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    File::create(path)?.write_all(contents.as_ref())
}

/// What the file system knows of a file; links are followed.
///
/// # Errors
/// As stat(2).
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    call(|| std::fs::metadata(path))
}

/// What the file system knows of a file; a link itself is looked at.
///
/// # Errors
/// As lstat(2).
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    call(|| std::fs::symlink_metadata(path))
}

/// Whether something is there; a broken link is nothing.
///
/// # Errors
/// It cannot be known: as stat(2), but for `NotFound`.
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    call(|| std::fs::exists(path))
}

/// The absolute path without links.
///
/// # Errors
/// As realpath(3).
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    call(|| std::fs::canonicalize(path))
}

/// Where a link points.
///
/// # Errors
/// As readlink(2): `InvalidInput` if it is no link.
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    call(|| std::fs::read_link(path))
}

/// A second name for a file.
///
/// # Errors
/// As link(2).
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    call(|| std::fs::hard_link(original, link))
}

/// A symbolic link.
///
/// # Errors
/// As symlink(2).
#[deprecated = "as in std: use fs::unix::symlink"]
pub fn soft_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    unix::symlink(original, link)
}

/// Gives a file another name; one that has that name already is replaced.
///
/// # Errors
/// As rename(2).
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    call(|| std::fs::rename(from, to))
}

/// Removes a file or a link.
///
/// # Errors
/// As unlink(2).
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(|| std::fs::remove_file(path))
}

/// Makes a directory.
///
/// # Errors
/// As mkdir(2).
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// Makes a directory and those above it. One that exists is no error.
///
/// # Errors
/// As mkdir(2).
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// Removes an empty directory.
///
/// # Errors
/// As rmdir(2).
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(|| std::fs::remove_dir(path))
}

/// Removes a directory with all that is below it; links are removed, not followed.
///
/// # Errors
/// As std's: the first that cannot be removed ends it.
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    long_call(|| std::fs::remove_dir_all(path))
}

/// What is in a directory, in no order.
///
/// # Errors
/// As opendir(3).
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    ReadDir::new(path.as_ref())
}

/// Changes the permissions of a file; links are followed.
///
/// # Errors
/// As chmod(2).
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    call(|| std::fs::set_permissions(path, permissions))
}
