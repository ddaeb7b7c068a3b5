//! Exclusive locks of files and directories, by flock(2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A locked file or directory. Drop unlocks it.
#[derive(Debug)]
pub(super) struct FileLock {
    file: File,
    /// The process that locked it.
    process: u32,
}

impl FileLock {
    /// Locks `file`. Blocks the kernel thread until it is unlocked.
    pub(super) fn wait_for(file: File) -> io::Result<FileLock> {
        flock(&file, libc::LOCK_EX)?;
        Ok(FileLock { file, process: std::process::id() })
    }

    /// Locks `file`. Returns `None` if it is locked already.
    pub(super) fn try_take(file: File) -> io::Result<Option<FileLock>> {
        match flock(&file, libc::LOCK_EX | libc::LOCK_NB) {
            Ok(()) => Ok(Some(FileLock { file, process: std::process::id() })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that another thread is about to start has
        // a copy of the descriptor until it calls execve(2), and the lock lasts as long as any
        // copy. A forked child must not unlock its parent's file.
        if self.process == std::process::id() {
            // Cannot fail: the descriptor is open.
            let _ = flock(&self.file, libc::LOCK_UN);
        }
    }
}

fn flock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: takes integers.
    match unsafe { libc::flock(file.as_raw_fd(), how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
