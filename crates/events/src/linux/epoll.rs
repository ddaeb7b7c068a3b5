//! Registration of descriptors with epoll(7), for waiters that share one epoll set.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Wakes the waiters on `epoll`, one a time, when `fd` becomes readable.
///
/// # Errors
/// What epoll_ctl(2) says.
pub fn watch_for(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
    // Edge-triggered: one wake-up of one waiter for each cause. The woken thread takes all there
    // is.
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: data };
    // SAFETY: a live event.
    match unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
