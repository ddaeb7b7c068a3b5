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
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_arbiter::row::{Cell, Head, Reach, Row, SleepMode};
use kumihimo_queue::{Owner, Set};

use crate::idle::poller::{CALL, Poller};
use crate::loom::{EpollWaker, Unparker};
use crate::microprocess::record::Mp;

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
    unparker: Unparker,
}

impl Idle {
    /// Creates the shared half of VP number `vp`, whose epoll set is that of `poller`.
    pub(crate) fn new(
        row: Row,
        vp: usize,
        poller: &Poller,
        unparker: Unparker,
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
        Ok(Idle { cell, reach: row.reach, worth_waking_at, call, unparker })
    }

    /// Whether the sleeping VP is worth waking for a little work: not if it had so little work
    /// after its last wake-up that it soon slept again.
    pub(crate) fn is_worth_waking(&self, now: impl FnOnce() -> u64) -> bool {
        let worth_waking_at = self.worth_waking_at.load(Ordering::Relaxed);
        worth_waking_at == 0 || now() >= worth_waking_at
    }

    /// Whether the VP is parked: it has no kernel thread. Any thread may call this.
    pub(crate) fn is_parked(&self) -> bool {
        self.unparker.is_parked()
    }

    /// Makes the VP check for work, waking it if it sleeps, or giving it a kernel thread if it is
    /// parked.
    #[inline]
    pub(crate) fn wake(&self) {
        match self.cell.claim_wake() {
            // `claim_wake` has passed a full fence.
            None => self.unparker.unpark(),
            Some(SleepMode::Futex) => self.cell.wake(self.reach),
            Some(SleepMode::Descriptors) => self.call.wake(),
        }
    }

    /// Announces that the VP is about to sleep, and then checks once more every place to which
    /// other threads pass work for it. `may_pull` returns whether the VP may take the visible work
    /// of others. The VP must not sleep if there is work; in any case it [gets up](Idle::get_up)
    /// afterwards. A retired VP takes no work of others until it is opened again. Owner only.
    pub(crate) fn prepare_sleep(
        &self,
        queue: Owner<Mp>,
        head: &Head,
        poller: &Poller,
        is_retired: bool,
        may_pull: impl FnOnce() -> bool,
    ) -> LastLook {
        let mode = self.announce_sleep(poller);
        let is_visible = if is_retired { queue.has_incoming() } else { queue.has_visible_work() };
        // The visible work of other VPs may not be taken now. Polling for it would use up the CPU
        // time share of the next period, and of all periods after it.
        let is_barred = !is_retired && is_visible && queue.injector_is_empty() && !may_pull();
        let has_work =
            is_visible && !is_barred || !queue.is_empty() || is_called(mode, queue, head, poller);
        LastLook { mode, is_barred, has_work }
    }

    /// Announces that the VP is about to sleep. The caller then checks whether the VP
    /// [is called](is_called). Owner only.
    pub(crate) fn announce_sleep(&self, poller: &Poller) -> SleepMode {
        let mode = if poller.is_used() { SleepMode::Descriptors } else { SleepMode::Futex };
        // Ends with a full fence: a waker that finds the VP awake has passed its work before that,
        // and the check finds it.
        self.cell.prepare_sleep(mode);
        mode
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

/// Result of the check before a sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastLook {
    pub(crate) mode: SleepMode,
    /// Whether there is work that the VP may not take now.
    pub(crate) is_barred: bool,
    /// Whether there is work for the VP.
    pub(crate) has_work: bool,
}

/// Whether another thread has passed work to the VP that is about to sleep in `mode`. Owner only.
pub(crate) fn is_called(mode: SleepMode, queue: Owner<Mp>, head: &Head, poller: &Poller) -> bool {
    // A sticky microprocess registered a descriptor meanwhile (`crate::upcall::sticky`); it has
    // woken the VP or is about to.
    let lies_wrong = mode == SleepMode::Futex && poller.is_used();
    !queue.injector_is_empty() || head.has_posts() || lies_wrong
}

/// Puts `mp` into the injector of VP `to`, whose idle half is `idle`, and wakes that VP if it
/// sleeps. Called by any thread.
///
/// # Safety
/// The caller holds `mp`, which is LIVE and in no queue.
#[inline]
pub(crate) unsafe fn inject(queues: &Set<Mp>, to: usize, idle: &Idle, mp: &'static Mp) {
    // SAFETY: the caller's promise; records live for ever.
    let first = unsafe { queues.inject(to, NonNull::from(mp)) };
    // Behind another item in the injector: the thread that put it there wakes the VP.
    if first {
        idle.wake();
    }
}
