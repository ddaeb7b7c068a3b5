//! Events for a running microprocess or a waiting kernel thread: *Preempted*, *Changed*, the end of
//! a wait.

use std::sync::atomic::{Ordering, fence};

use crate::handoff::slot::Slot;
use crate::handoff::thread_state::Event;
use crate::pool::kernel::Kernel;

impl Kernel {
    /// Raises `event` for the carrier of `vp`. The event is delivered when the carrier's slot is
    /// unmasked. A carrier that runs in user mode without unmasking its slot is interrupted
    /// ([`crate::preempt`]).
    ///
    /// Takes a lock: the caller is masked, is no microprocess, or runs in a signal handler outside
    /// of the runtime.
    pub fn raise(&self, vp: u32, event: Event) {
        // Pairs with the fence in `KernelThread::install_vp`. Either the thread that now takes the
        // VP sees what the caller queued before, or the caller sees that thread's slot.
        fence(Ordering::SeqCst);
        let index = self.carriers.of(vp);
        if index == 0 {
            return;
        }
        let slot = self.page.slot(index);
        if event == Event::Preempted {
            self.watchdog.raised(vp);
        }
        // A thread that finds the bit set does not ring. It relies on the thread that set the bit
        // to have rung, and on the timekeeper to ring again.
        if slot.pending.fetch_or(event.bit(), Ordering::SeqCst) & event.bit() == 0 {
            self.doorbells.ring(index, slot);
        }
    }

    /// Returns whether an event is raised for the carrier of `vp` and not yet delivered.
    #[must_use]
    pub fn is_raised(&self, vp: u32) -> bool {
        self.carrier(vp).is_some_and(Slot::has_pending)
    }

    /// Ends the waits for `vp`, which is stalled, on the kernel threads of returned microprocesses.
    /// They continue without a VP. Async-signal-safe.
    pub fn release_waiters(&self, vp: u32) {
        let high = self.high.load(Ordering::Relaxed) as usize;
        self.waiters.iter().take(high + 1).for_each(|waiter| waiter.release(vp));
    }

    /// Interrupts the microprocess on the kernel thread of slot `index`, if that thread has no VP.
    /// The user scheduler is notified as after [`raise`](Kernel::raise). Harmless to another thread
    /// that uses the slot by now. Takes a lock, as `raise` does.
    pub fn call_back(&self, index: u32) {
        let slot = self.page.slot(index);
        slot.pending.fetch_or(Event::Preempted.bit(), Ordering::SeqCst);
        self.doorbells.ring(index, slot);
    }

    /// Rings the doorbell of the carrier of `vp` once more for a raised event, unless it is masked.
    pub fn ring_again(&self, vp: u32) {
        let index = self.carriers.of(vp);
        if index != 0 && !self.page.slot(index).is_masked() {
            self.doorbells.ring(index, self.page.slot(index));
        }
    }
}
