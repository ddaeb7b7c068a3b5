//! Descriptors of the runtime, which a program may have closed.
//!
//! A program that becomes a daemon closes all descriptors, and opens its own files under the same
//! numbers. To close such a number again would close the program's file. Where the number is not
//! in use, `std::os::fd::OwnedFd` ends the process in debug builds.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A descriptor that is closed on drop, if its number still denotes an object of the same inode.
///
/// All objects without a file share one inode: epoll sets, eventfds, perf events, objects of BPF
/// (`anon_inode_getfile`, fs/anon_inodes.c). Two of them cannot be told apart.
///
/// The drop makes two system calls, leaves errno unchanged, and is async-signal-safe.
#[derive(Debug)]
pub struct Descriptor {
    fd: RawFd,
    inode: Option<Inode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inode {
    device: libc::dev_t,
    number: libc::ino_t,
}

impl Inode {
    /// Returns the inode of what `fd` denotes; `None` if it is closed.
    fn of(fd: RawFd) -> Option<Inode> {
        status(fd).map(|status| Inode { device: status.st_dev, number: status.st_ino })
    }
}

/// fstat(2) without errno. `None` if `fd` is closed.
fn status(fd: RawFd) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the structure.
    let done = unsafe {
        let at = status.as_mut_ptr().expose_provenance();
        crate::system_call(libc::SYS_fstat, [fd as usize, at, 0, 0, 0, 0])
    };
    // SAFETY: written by the successful call.
    (done == 0).then(|| unsafe { status.assume_init() })
}

/// Whether `fd` has no type of file, as eventfd(2) and the like have none (`anon_inode_getfile`,
/// fs/anon_inodes.c). Leaves errno unchanged. Async-signal-safe.
#[must_use]
pub fn is_anonymous(fd: RawFd) -> bool {
    status(fd).is_some_and(|status| status.st_mode & libc::S_IFMT == 0)
}

/// Closes an anonymous object that was kept by its number, unless a program has closed it and
/// opened a file there. Leaves errno unchanged. Async-signal-safe.
///
/// # Safety
/// `fd` is the caller's, and not used any more.
pub unsafe fn close_anonymous(fd: RawFd) {
    if is_anonymous(fd) {
        // SAFETY: the caller's promise.
        unsafe { crate::system_call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    }
}

impl FromRawFd for Descriptor {
    unsafe fn from_raw_fd(fd: RawFd) -> Descriptor {
        Descriptor { fd, inode: Inode::of(fd) }
    }
}

impl From<OwnedFd> for Descriptor {
    fn from(owned: OwnedFd) -> Descriptor {
        // SAFETY: owned by nothing else.
        unsafe { Descriptor::from_raw_fd(owned.into_raw_fd()) }
    }
}

impl IntoRawFd for Descriptor {
    fn into_raw_fd(self) -> RawFd {
        let fd = self.fd;
        std::mem::forget(self);
        fd
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is not -1, and stays open for as long as `self` is borrowed, unless the
        // program closes what it has not opened: then calls fail, or act on its file.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // These system calls leave errno alone: handlers of signals come here, too.
        let inode = Inode::of(self.fd);
        if inode.is_some() && inode == self.inode {
            // SAFETY: ours, as its inode is the one that it had.
            unsafe { crate::system_call(libc::SYS_close, [self.fd as usize, 0, 0, 0, 0, 0]) };
        }
    }
}

#[cfg(test)]
mod tests;
