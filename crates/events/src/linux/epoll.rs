//! Registration of descriptors with epoll(7), for waiters that share one epoll set.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use kumihimo_arch::kernel::epoll_ctl;

/// Makes `epoll` wake one waiter each time that `fd` becomes readable.
///
/// # Errors
/// Those of epoll_ctl(2).
pub fn watch_for(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
    // Edge-triggered: each cause wakes one waiter once. The woken thread must take all that is
    // available.
    let events = libc::EPOLLIN | libc::EPOLLET;
    epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), events, data)
}
