//! A virtual processor without work: look, spin, sleep; and how it is woken.
//!
//! Runs on the kernel thread's own stack. The VP lies down in its cell ([`kumihimo_arbiter::row`]
//! has the protocol against lost wake-ups, and its models): on the cell's word as long as it waits
//! for no descriptors, since a futex costs a third less than an eventfd in an epoll set, and every
//! process that maps the cell can call it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_arbiter::row::{Bed, Cell, Reach, Row};

use crate::idle::poller::Poller;

/// Shared half of a VP's idling.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) cell: &'static Cell,
    reach: Reach,
    /// When it pays again to wake the VP for a little work, on the instance's clock.
    pub(crate) worth_waking_at: AtomicU64,
    /// eventfd in the VP's epoll set.
    call: OwnedFd,
}

impl Idle {
    pub(crate) fn new(row: Row, vp: usize) -> io::Result<Idle> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let e = io::Error::last_os_error();
            let text = format!(
                "eventfd of a virtual processor: {e}; raise the descriptor limit (ulimit -n)"
            );
            return Err(io::Error::new(e.kind(), text));
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let call = unsafe { OwnedFd::from_raw_fd(fd) };
        let cell = &row.cells[vp];
        cell.runs();
        Ok(Idle { cell, reach: row.reach, worth_waking_at: AtomicU64::new(0), call })
    }

    pub(crate) fn raw(&self) -> i32 {
        self.call.as_raw_fd()
    }

    /// Whether it pays to wake the VP, which sleeps, for a little work: not if it had so little
    /// lately that it soon slept again.
    pub(crate) fn is_worth_waking(&self, now: impl FnOnce() -> u64) -> bool {
        let worth_waking_at = self.worth_waking_at.load(Ordering::Relaxed);
        worth_waking_at == 0 || now() >= worth_waking_at
    }

    /// Sees to it that the VP looks at what was put before it.
    #[inline]
    pub(crate) fn wake(&self) {
        match self.cell.call() {
            None => {}
            Some(Bed::Word) => self.cell.wake(self.reach),
            Some(Bed::Descriptors) => self.write(),
        }
    }

    #[cold]
    fn write(&self) {
        let one = 1u64;
        // SAFETY: 8 live bytes. The only failure, EAGAIN at 2^64-1, means that it is readable
        // anyway.
        unsafe { libc::write(self.call.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Lying in its cell, in this bed, it sleeps until it is called, or so long. Owner only.
    pub(crate) fn sleep(&self, bed: Bed, poller: &Poller, at_most: Option<Duration>) {
        match bed {
            Bed::Word => self.cell.sleep(at_most, self.reach),
            Bed::Descriptors => poller.sleep(at_most),
        }
    }

    /// It is up. Owner only.
    pub(crate) fn get_up(&self, bed: Bed) {
        if self.cell.get_up() && bed == Bed::Descriptors {
            self.drain();
        }
    }

    fn drain(&self) {
        let mut n = 0u64;
        // SAFETY: 8 live bytes; EAGAIN is fine.
        unsafe { libc::read(self.call.as_raw_fd(), (&raw mut n).cast(), 8) };
    }
}
