//! Wake-ups through descriptors, which harm nothing if the program has closed the descriptors.
//!
//! A program that becomes a daemon may close all descriptors, and then opens its own files under
//! the same numbers. A wake-up that wrote to such a number would write into the program's file. So
//! a wake-up is a call that fails on everything but the runtime's own object. Where microprocesses
//! depend on it, the failure ends the process with the cause.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_arch::descriptor::{Descriptor, is_anonymous};
use kumihimo_arch::kernel::epoll_ctl;

use crate::report::stderr_signal_safe::print_signal_safe;

/// Wakes a thread that waits in an epoll set.
///
/// It is an eventfd that is always readable, in the set with `EPOLLONESHOT`. Each wake-up arms it
/// again (epoll_ctl(2), `EPOLL_CTL_MOD`), and the thread that receives the event needs no read.
/// Several wake-ups before that are one.
#[derive(Debug)]
pub struct EpollWaker {
    eventfd: Descriptor,
    /// The set. Its owner keeps it open for as long as the waker is used.
    set: RawFd,
    token: u64,
}

impl EpollWaker {
    /// Adds a waker to `set`, whose waiters receive `token` for each wake-up.
    ///
    /// # Errors
    /// Those of eventfd(2) and epoll_ctl(2).
    pub fn new(set: BorrowedFd<'_>, token: u64) -> io::Result<EpollWaker> {
        // SAFETY: integers only.
        let fd =
            unsafe { kumihimo_arch::kernel::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        let eventfd = unsafe { Descriptor::from_raw_fd(fd) };
        let waker = EpollWaker { eventfd, set: set.as_raw_fd(), token };
        waker.control(libc::EPOLL_CTL_ADD, 0)?;
        Ok(waker)
    }

    /// Wakes a thread that waits in the set, or else the next one that begins to wait there.
    /// Async-signal-safe.
    ///
    /// # Panics
    /// Aborts the process if the program has closed the set or the waker's eventfd.
    #[inline]
    pub fn wake(&self) {
        let armed = libc::EPOLLIN | libc::EPOLLONESHOT;
        if let Err(error) = self.control(libc::EPOLL_CTL_MOD, armed) {
            lost_descriptor(self.set, "an epoll set", &error);
        }
    }

    fn control(&self, operation: libc::c_int, events: libc::c_int) -> io::Result<()> {
        epoll_ctl(self.set, operation, self.eventfd.as_raw_fd(), events, self.token)
    }
}

/// Adds 1 to the counter of an eventfd of the runtime. Writes nothing, and returns false, if `fd`
/// is no eventfd by now, or is closed. Async-signal-safe.
pub fn add_to_eventfd(fd: BorrowedFd<'_>) -> bool {
    let one = 1u64;
    let fd = fd.as_raw_fd();
    // SAFETY: 8 live bytes.
    let write = || unsafe { kumihimo_arch::kernel::write(fd, (&raw const one).cast(), 8) };
    // EAGAIN: the counter is at its maximum, so the eventfd is readable anyway.
    let is_full = || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    is_anonymous(fd) && (write() == 8 || is_full())
}

/// Ends the process, since `what`, a descriptor of the runtime, was closed by somebody else.
/// Async-signal-safe.
#[cold]
pub fn lost_descriptor(fd: RawFd, what: &str, error: &io::Error) -> ! {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    while IS_REPORTED.swap(true, Ordering::Relaxed) {
        // Another thread reports, and ends the process.
        kumihimo_arch::kernel::pause();
    }
    // `io::Error` allocates when it prints.
    let number = error.raw_os_error().unwrap_or(0);
    print_signal_safe(format_args!(
        "kumihimo: the program has closed descriptor {fd} of the runtime, {what} (errno {number}), so that no microprocess can go on: \
         close only descriptors that the program has opened, or close all before the first microprocess starts\n"
    ));
    // SAFETY: takes nothing.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests;
