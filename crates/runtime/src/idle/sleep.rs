//! Sleep and wake-up of a VP.
//!
//! The VP sleeps in its cell; [`kumihimo_arbiter::row`] has the protocol against lost wake-ups, and
//! its models. It sleeps on the cell's futex word as long as it waits for no descriptors. A futex
//! costs a third less than an eventfd in an epoll set, and every process that maps the cell can
//! wake it.
//!
//! A parked VP ([`crate::scheduler::parking`]) has no kernel thread that could sleep. Its cell
//! shows that it runs, so that other address spaces leave it alone; only its own address space
//! wakes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_arbiter::row::{Cell, Reach, Row, SleepMode};

use kumihimo_events::Kernel;
use kumihimo_events::wakeup::EpollWaker;

use crate::idle::poller::{CALL, Poller};

/// Shared half of an idling VP.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) cell: &'static Cell,
    reach: Reach,
    /// Time from which on waking the VP for a little work is worth while again, on the instance's
    /// clock.
    pub(crate) worth_waking_at: AtomicU64,
    /// Wakes the VP when it sleeps in its epoll set.
    call: EpollWaker,
    /// Gives the VP a kernel thread when it is parked.
    kernel: Arc<Kernel>,
    vp: u32,
}

impl Idle {
    /// Creates the shared half of VP number `vp`, whose epoll set is that of `poller`.
    pub(crate) fn new(
        row: Row,
        vp: usize,
        poller: &Poller,
        kernel: Arc<Kernel>,
    ) -> io::Result<Idle> {
        let call = EpollWaker::new(poller.as_fd(), CALL).map_err(|e| {
            let text = format!(
                "eventfd of a virtual processor: {e}; raise the descriptor limit (ulimit -n)"
            );
            io::Error::new(e.kind(), text)
        })?;
        let cell = &row.cells[vp];
        cell.set_running();
        let worth_waking_at = AtomicU64::new(0);
        Ok(Idle { cell, reach: row.reach, worth_waking_at, call, kernel, vp: vp as u32 })
    }

    /// Whether the sleeping VP is worth waking for a little work: not if it had so little work
    /// after its last wake-up that it soon slept again.
    pub(crate) fn is_worth_waking(&self, now: impl FnOnce() -> u64) -> bool {
        let worth_waking_at = self.worth_waking_at.load(Ordering::Relaxed);
        worth_waking_at == 0 || now() >= worth_waking_at
    }

    /// Whether the VP is parked: it has no kernel thread. Any thread may call this.
    pub(crate) fn is_parked(&self) -> bool {
        self.kernel.is_parked(self.vp)
    }

    /// Makes the VP check for work, waking it if it sleeps, or giving it a kernel thread if it is
    /// parked.
    #[inline]
    pub(crate) fn wake(&self) {
        match self.cell.claim_wake() {
            // `claim_wake` has passed a full fence.
            None => self.kernel.unpark(self.vp),
            Some(SleepMode::Futex) => self.cell.wake(self.reach),
            Some(SleepMode::Descriptors) => self.call.wake(),
        }
    }

    /// Sleeps in the cell, in mode `bed`, until woken or for at most `at_most`. Owner only.
    pub(crate) fn sleep(&self, bed: SleepMode, poller: &Poller, at_most: Option<Duration>) {
        match bed {
            SleepMode::Futex => self.cell.sleep(at_most, self.reach),
            SleepMode::Descriptors => poller.sleep(at_most),
        }
    }

    /// Ends the sleep. Owner only.
    pub(crate) fn get_up(&self) {
        // A wake-up that the sleep did not receive, because a descriptor became ready first, ends
        // the next sleep at once.
        let _ = self.cell.finish_sleep();
    }
}
