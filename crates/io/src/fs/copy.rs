//! Copying from file to file inside the kernel.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use kumihimo_runtime::cancel;

use super::call::{call, long_call};

/// Bytes between two cancellation points: some milliseconds of a disk.
const PART: usize = 16 << 20;

/// Copies contents and permissions of a file; creates or replaces `to`. Returns the number of
/// bytes.
///
/// Blocks the microprocess and its kernel thread until the copy is complete; other microprocesses
/// continue. Tries three methods in order, inside `blocking`:
///
/// 1. a *reflink* (ioctl_ficlone(2); btrfs, XFS, bcachefs): both files share their blocks until one
///    is written, so it copies nothing;
/// 2. copy_file_range(2), inside the kernel, or on the server of a network file system;
/// 3. read and write.
///
/// A cancellation point every 16 MiB; `to` is then incomplete, as after an error.
///
/// # Errors
/// As open(2), read(2) and write(2); `InvalidInput` if `from` is no regular file.
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("original", "twelve bytes")?;
/// assert_eq!(fs::copy("original", "backup")?, 12);
/// assert_eq!(fs::read_to_string("backup")?, "twelve bytes");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let (from, mode) = call(|| {
        let from = File::open(from)?;
        let metadata = from.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the source path is neither a regular file nor a symlink to a regular file",
            ));
        }
        Ok((from, metadata.permissions().mode()))
    })?;
    let to = call(|| {
        let to = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(to)?;
        let metadata = to.metadata()?;
        // The file existed with other permissions. A pipe or a device keeps its own.
        if metadata.is_file() && metadata.permissions().mode() != mode {
            to.set_permissions(PermissionsExt::from_mode(mode))?;
        }
        Ok(to)
    })?;
    if long_call(|| reflink(from.as_fd(), to.as_fd()))? {
        return Ok(from.metadata()?.len());
    }
    match copy_ranges(from.as_fd(), to.as_fd(), u64::MAX) {
        KernelCopy::Ended(copied) => Ok(copied),
        KernelCopy::Unsupported(copied) => Ok(copied + copy_plainly(&from, &to)?),
        KernelCopy::Failed(_, e) => Err(e),
    }
}

/// Shares the blocks of `from`. False if the file systems do not support it.
fn reflink(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: FICLONE takes a descriptor.
    if unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) } == 0 {
        return Ok(true);
    }
    let e = io::Error::last_os_error();
    match e.raw_os_error() {
        Some(libc::EIO | libc::ENOSPC | libc::EDQUOT) => Err(e),
        _ => Ok(false),
    }
}

/// Result of copying inside the kernel.
pub(crate) enum KernelCopy {
    /// The source has ended, or the limit is reached: the number of bytes.
    Ended(u64),
    /// The kernel does not continue with these files after this number of bytes. The caller copies
    /// the rest.
    Unsupported(u64),
    /// An error after this number of bytes.
    Failed(u64, io::Error),
}

/// Copies at most `limit` bytes between the positions of two open files, with copy_file_range(2).
pub(crate) fn copy_ranges(from: BorrowedFd<'_>, to: BorrowedFd<'_>, limit: u64) -> KernelCopy {
    let null = std::ptr::null_mut();
    let (source, target) = (from.as_raw_fd(), to.as_raw_fd());
    copy_parts(limit, |len| {
        // SAFETY: no offsets are given.
        unsafe { libc::copy_file_range(source, null, target, null, len, 0) }
    })
}

/// As [`copy_ranges`], with sendfile(2): also between file systems, and within one file.
pub(crate) fn send_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>, limit: u64) -> KernelCopy {
    let (source, target) = (from.as_raw_fd(), to.as_raw_fd());
    copy_parts(limit, |len| {
        // SAFETY: no offset is given.
        unsafe { libc::sendfile(target, source, std::ptr::null_mut(), len) }
    })
}

/// Repeats `part`, which copies up to as many bytes as it is given and returns -1 on error.
fn copy_parts(limit: u64, part: impl Fn(usize) -> isize) -> KernelCopy {
    let mut copied = 0;
    while copied < limit {
        let len = usize::try_from(limit - copied).map_or(PART, |rest| rest.min(PART));
        let n = long_call(|| match part(len) {
            -1 => Err(io::Error::last_os_error()),
            n => Ok(n as u64),
        });
        match n {
            // An empty file, or one of size 0 with contents (procfs).
            Ok(0) if copied == 0 => return KernelCopy::Unsupported(0),
            Ok(0) => break,
            Ok(n) => copied += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => match e.raw_os_error() {
                Some(libc::EIO | libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EISDIR) => {
                    return KernelCopy::Failed(copied, e);
                }
                // Unsupported for these files or by this kernel: ENOSYS, EXDEV, EINVAL, EOPNOTSUPP,
                // EPERM (seccomp), EBADF (append), EOVERFLOW.
                _ => return KernelCopy::Unsupported(copied),
            },
        }
    }
    KernelCopy::Ended(copied)
}

fn copy_plainly(mut from: &File, mut to: &File) -> io::Result<u64> {
    let mut part = vec![0; 128 << 10];
    let mut copied = 0;
    loop {
        cancel::point();
        let n = long_call(|| {
            let n = from.read(&mut part)?;
            to.write_all(&part[..n])?;
            Ok(n)
        });
        match n {
            Ok(0) => return Ok(copied),
            Ok(n) => copied += n as u64,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
