//! Sleep and wake-up of a VP.
//!
//! The VP sleeps in its cell; [`kumihimo_arbiter::row`] has the protocol against lost wake-ups, and
//! its models. It sleeps on the cell's futex word as long as it waits for no descriptors. A futex
//! costs a third less than an eventfd in an epoll set, and every process that maps the cell can
//! wake it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_arbiter::row::{Cell, Reach, Row, SleepMode};

use crate::idle::poller::Poller;

/// Shared half of an idling VP.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) cell: &'static Cell,
    reach: Reach,
    /// Time from which on waking the VP for a little work is worth while again, on the instance's
    /// clock.
    pub(crate) worth_waking_at: AtomicU64,
    /// The eventfd in the VP's epoll set.
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
        // SAFETY: a new descriptor without another owner.
        let call = unsafe { OwnedFd::from_raw_fd(fd) };
        let cell = &row.cells[vp];
        cell.set_running();
        Ok(Idle { cell, reach: row.reach, worth_waking_at: AtomicU64::new(0), call })
    }

    pub(crate) fn raw(&self) -> i32 {
        self.call.as_raw_fd()
    }

    /// Whether the sleeping VP is worth waking for a little work: not if it had so little work
    /// after its last wake-up that it soon slept again.
    pub(crate) fn is_worth_waking(&self, now: impl FnOnce() -> u64) -> bool {
        let worth_waking_at = self.worth_waking_at.load(Ordering::Relaxed);
        worth_waking_at == 0 || now() >= worth_waking_at
    }

    /// Makes the VP check for work, waking it if it sleeps.
    #[inline]
    pub(crate) fn wake(&self) {
        match self.cell.claim_wake() {
            None => {}
            Some(SleepMode::Futex) => self.cell.wake(self.reach),
            Some(SleepMode::Descriptors) => self.write(),
        }
    }

    #[cold]
    fn write(&self) {
        let one = 1u64;
        // SAFETY: 8 live bytes. The only error, EAGAIN at 2^64-1, means that the eventfd is
        // readable anyway.
        unsafe { libc::write(self.call.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Sleeps in the cell, in mode `bed`, until woken or for at most `at_most`. Owner only.
    pub(crate) fn sleep(&self, bed: SleepMode, poller: &Poller, at_most: Option<Duration>) {
        match bed {
            SleepMode::Futex => self.cell.sleep(at_most, self.reach),
            SleepMode::Descriptors => poller.sleep(at_most),
        }
    }

    /// Ends the sleep. Owner only.
    pub(crate) fn get_up(&self, bed: SleepMode) {
        if self.cell.finish_sleep() && bed == SleepMode::Descriptors {
            self.drain();
        }
    }

    fn drain(&self) {
        let mut n = 0u64;
        // SAFETY: 8 live bytes; EAGAIN is harmless.
        unsafe { libc::read(self.call.as_raw_fd(), (&raw mut n).cast(), 8) };
    }
}
