//! Liveness by the kernel's word: locks on bytes of the board's file, far behind its end.
//!
//! A row is held by an *open file description* lock (fcntl(2), F_OFD_SETLK): it goes when the last
//! descriptor of that opening is closed, however its process ends. Beside it stands a plain record
//! lock, of which the kernel tells the process id, translated into the pid namespace of the asking
//! process; it is gone as soon as its process closes *any* descriptor of the file, so it says which
//! process to signal, and not which ones live.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::slot::ROWS;

/// Where rows are locked.
const ROW_LOCKS: i64 = 1 << 40;
/// Where the owners of rows tell their process ids.
const PID_LOCKS: i64 = 1 << 41;

/// A descriptor of the board's file.
#[derive(Debug)]
pub(crate) struct Locks {
    /// -1 in a fork's child, which has no part in its parent's locks.
    fd: AtomicI32,
}

impl Locks {
    pub(crate) fn new(fd: OwnedFd) -> Locks {
        Locks { fd: AtomicI32::new(std::os::fd::IntoRawFd::into_raw_fd(fd)) }
    }

    /// Tries for a row. False: somebody else has it.
    pub(crate) fn claim(&self, row: u16) -> io::Result<bool> {
        match self.lock(libc::F_OFD_SETLK, libc::F_WRLCK, ROW_LOCKS + i64::from(row), 1) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
        // Without it the process to signal is unknown, no more.
        let _ = self.lock(libc::F_SETLK, libc::F_WRLCK, PID_LOCKS + i64::from(row), 1);
        Ok(true)
    }

    pub(crate) fn release(&self, row: u16) {
        let _ = self.lock(libc::F_SETLK, libc::F_UNLCK, PID_LOCKS + i64::from(row), 1);
        let _ = self.lock(libc::F_OFD_SETLK, libc::F_UNLCK, ROW_LOCKS + i64::from(row), 1);
    }

    /// Whether another opening of the file holds the row. True where that cannot be found out.
    pub(crate) fn is_held(&self, row: u16) -> bool {
        self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, ROW_LOCKS + i64::from(row), 1)
            .map_or(true, |lock| i32::from(lock.l_type) != libc::F_UNLCK)
    }

    /// The rows that other openings of the file hold, in rising order.
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
            // The kernel tells of *a* lock in the range, not of the first: one at a time from here,
            // up to it.
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

    /// The process that holds a row, as this one knows it. None: this one itself, one of another
    /// pid namespace, or one that cannot be found out.
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
            // Open file description locks want 0 here.
            l_pid: 0,
        };
        // SAFETY: a live struct flock; a descriptor that is ours, or -1, which is refused.
        // fcntl(2).
        let done =
            unsafe { libc::fcntl(self.fd.load(Ordering::Relaxed), operation, &raw mut lock) };
        if done == 0 { Ok(lock) } else { Err(io::Error::last_os_error()) }
    }

    /// The file, if it is there.
    pub(crate) fn with_file<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let fd = self.fd.load(Ordering::Relaxed);
        // SAFETY: ours, and open until `forget`, which comes in a fork's child or with the end of
        // self.
        (fd >= 0).then(|| f(unsafe { BorrowedFd::borrow_raw(fd) }))
    }

    /// In a fork's child: its parent's locks would live on in it. Safe in a signal handler.
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
        // SAFETY: it was ours, and nobody uses it any more.
        unsafe { libc::close(fd) };
    }
}

/// The file's own lock while it is made (flock(2)); the kernel takes it back if its holder dies.
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
