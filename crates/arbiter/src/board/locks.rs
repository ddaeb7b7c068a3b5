//! Liveness of rows, determined by locks on bytes far beyond the end of the board's file.
//!
//! An *open file description* lock (fcntl(2), F_OFD_SETLK) holds a row. The kernel releases it when
//! the last descriptor of that open file description is closed, however the process ends.
//!
//! Next to it lies a traditional record lock, for which the kernel reports the owner's pid,
//! translated to the caller's pid namespace. The kernel releases it as soon as its process closes
//! *any* descriptor of the file. Thus it identifies the process to signal, but not whether a row is
//! live.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::board::truncation::OpenFile;
use crate::slot::ROWS;

/// Offset of the row locks.
const ROW_LOCKS: i64 = 1 << 40;
/// Offset of the record locks that identify the owners of rows.
const PID_LOCKS: i64 = 1 << 41;

/// Descriptor of the board's file, with its locks.
#[derive(Debug)]
pub(crate) struct Locks {
    /// -1 in the child of a fork, which must not keep its parent's locks.
    fd: AtomicI32,
    file: Option<OpenFile>,
}

impl Locks {
    pub(crate) fn new(fd: OwnedFd) -> Locks {
        let fd = std::os::fd::IntoRawFd::into_raw_fd(fd);
        Locks { fd: AtomicI32::new(fd), file: OpenFile::of(fd) }
    }

    /// Returns the board's file, if it could be examined.
    pub(crate) fn file(&self) -> Option<OpenFile> {
        self.file
    }

    /// Tries to lock a row. Returns false if another process holds it.
    pub(crate) fn claim(&self, row: u16) -> io::Result<bool> {
        match self.lock(libc::F_OFD_SETLK, libc::F_WRLCK, ROW_LOCKS + i64::from(row), 1) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
        // On an error the process to signal stays unknown; nothing else depends on this lock.
        let _ = self.lock(libc::F_SETLK, libc::F_WRLCK, PID_LOCKS + i64::from(row), 1);
        Ok(true)
    }

    pub(crate) fn release(&self, row: u16) {
        let _ = self.lock(libc::F_SETLK, libc::F_UNLCK, PID_LOCKS + i64::from(row), 1);
        let _ = self.lock(libc::F_OFD_SETLK, libc::F_UNLCK, ROW_LOCKS + i64::from(row), 1);
    }

    /// Returns whether another open file description holds the row. True if that cannot be
    /// determined.
    pub(crate) fn is_held(&self, row: u16) -> bool {
        self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, ROW_LOCKS + i64::from(row), 1)
            .map_or(true, |lock| i32::from(lock.l_type) != libc::F_UNLCK)
    }

    /// Returns the rows that other open file descriptions hold, in ascending order.
    pub(crate) fn held(&self) -> Vec<u16> {
        let mut rows = Vec::new();
        let mut row = 0;
        while row < ROWS as i64 {
            let Ok(lock) =
                self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, ROW_LOCKS + row, ROWS as i64 - row)
            else {
                break;
            };
            if i32::from(lock.l_type) == libc::F_UNLCK {
                break;
            }
            // The kernel reports *any* conflicting lock in the range, not the first. The rows
            // before it are tested one by one.
            let found = (lock.l_start - ROW_LOCKS).clamp(row, ROWS as i64 - 1);
            for candidate in row..=found {
                if candidate == found || self.is_held(candidate as u16) {
                    rows.push(candidate as u16);
                }
            }
            row = found + 1;
        }
        rows
    }

    /// Returns the pid of the process that holds a row, in the caller's pid namespace. `None` for
    /// the calling process, for a process of another pid namespace, and if it cannot be determined.
    pub(crate) fn pid(&self, row: u16) -> Option<u32> {
        let lock = self.lock(libc::F_GETLK, libc::F_WRLCK, PID_LOCKS + i64::from(row), 1).ok()?;
        (i32::from(lock.l_type) != libc::F_UNLCK)
            .then_some(lock.l_pid)
            .filter(|&pid| pid > 0)
            .map(|pid| pid as u32)
    }

    fn lock(&self, operation: i32, kind: i32, start: i64, length: i64) -> io::Result<libc::flock> {
        let mut lock = libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: start,
            l_len: length,
            // F_OFD_* commands require `l_pid` to be 0 (fcntl(2)).
            l_pid: 0,
        };
        // SAFETY: a live struct flock, and a descriptor that is ours or -1, which fcntl(2) rejects.
        let done = unsafe {
            kumihimo_arch::kernel::fcntl(self.fd.load(Ordering::Relaxed), operation, &raw mut lock)
        };
        if done == 0 { Ok(lock) } else { Err(io::Error::last_os_error()) }
    }

    /// Calls `f` with the file, unless the file is closed, by the program too.
    pub(crate) fn with_file<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.file.filter(OpenFile::is_still_open)?;
        let fd = self.fd.load(Ordering::Relaxed);
        // SAFETY: our descriptor, which is open until `forget`: that runs in the child of a fork or
        // when `self` is dropped.
        (fd >= 0).then(|| f(unsafe { BorrowedFd::borrow_raw(fd) }))
    }

    /// In the child of a fork: closes the descriptor, which would keep the parent's locks alive.
    /// Async-signal-safe.
    pub(crate) fn forget(&self) {
        close(self.fd.swap(-1, Ordering::Relaxed));
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.forget();
    }
}

fn close(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: the descriptor was ours, and nothing uses it any more.
        unsafe { kumihimo_arch::kernel::close(fd) };
    }
}

/// Tries to take the lock of the whole file, which guards its creation (flock(2)). The kernel
/// releases it if its holder dies.
pub(crate) fn try_lock_file(fd: &OwnedFd) -> io::Result<bool> {
    // SAFETY: a live descriptor.
    if unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let e = io::Error::last_os_error();
    if e.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(e) }
}

pub(crate) fn unlock_file(fd: &OwnedFd) {
    // SAFETY: a live descriptor.
    unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_UN) };
}
