//! Take-over: a spare claims the VP of a kernel thread that sleeps or lends its VP.

use std::sync::atomic::Ordering;

use crate::handoff::slot::{self, Claim, Slot};
use crate::handoff::thread_state::AWAY;
use crate::pool::kernel::Kernel;
use crate::pool::record::Step;
use crate::pool::sched::Answer;
use crate::preempt::signal_handler;

impl Kernel {
    /// Handles *Blocked* from the source: the kernel thread of slot `index` may sleep, or may have
    /// slept.
    pub(crate) fn blocked(&self, index: u32) {
        // A source that lends in the kernel has lent the VP only if the carrier slept. A carrier
        // that is back keeps its VP: none is taken from a running one.
        self.take_over(index, if self.source.lends(index) { Slot::accept } else { Slot::claim });
    }

    /// Claims the VP of slot `index`, and calls the user scheduler for the next priority. Returns
    /// whether the claim succeeded.
    fn take_over(&self, index: u32, claim: fn(&Slot) -> Claim) -> bool {
        let Some(scheduler) = self.user() else { return false };
        let slot = self.page.slot(index);
        let time = slot.times.load(Ordering::Acquire);
        let state = slot.state.load(Ordering::Relaxed);
        // Incremented before the claim: a carrier that loses its VP decrements the count.
        self.bound.fetch_add(1, Ordering::Relaxed);
        let Some((vp, token)) = self.carriers.take_over(slot, index, claim) else {
            self.bound.fetch_sub(1, Ordering::Release);
            return false;
        };
        // Fails if the carrier is back and has changed its state.
        let _ = slot.state.compare_exchange(state, AWAY, Ordering::Relaxed, Ordering::Relaxed);
        self.source.end(index, time);
        self.check_trap_handler();
        self.hand_offs.fetch_add(1, Ordering::Relaxed);
        self.record(Step::Sleeps, index, None);
        self.record(Step::Blocked, index, None);
        self.watchdog.begin_blocked(vp);
        let answer = scheduler.blocked(vp);
        if self.watchdog.finish_blocked(vp) {
            self.lock().stuck -= 1;
        }
        if let Answer::Next(priority) = answer {
            self.lock().push(token, priority);
        }
        true
    }

    /// Returns whether returns are to be reported by a trap.
    pub(crate) fn wants_returns(&self) -> bool {
        self.wants_returns.load(Ordering::Relaxed)
    }

    /// Stops requesting traps once the application has replaced our handler. Traps that are under
    /// way still reach the application.
    fn check_trap_handler(&self) {
        signal_handler::update_signal_masks();
        if !self.wants_returns()
            || signal_handler::is_installed(libc::SIGTRAP)
            || !self.wants_returns.swap(false, Ordering::Relaxed)
        {
            return;
        }
        for slot in self.slots() {
            slot.wanted.fetch_and(!slot::WANT_UNBLOCKED, Ordering::Relaxed);
        }
        eprintln!(
            "kumihimo: the handler of SIGTRAP was replaced after the runtime started: a microprocess that returns from a block waits for its \
             virtual processor only when it next enters the runtime; install such a handler before, and it gets its own SIGTRAPs"
        );
    }

    /// Handles *Blocked* from the kernel threads themselves, and the watchdog's requests.
    pub(crate) fn take_lent(&self) {
        let overruled = std::mem::take(&mut self.lock().overruled);
        for index in overruled {
            // The claim fails while the slot is masked, and the rest of the list is lost if the
            // user scheduler does not return. The watchdog repeats its request in both cases. The
            // microprocess detects the loss of its VP when it next enters the user scheduler, as a
            // sleeper does.
            self.take_over(index, Slot::claim);
        }
        // Takes one entry at a time: if the user scheduler does not return, other threads handle
        // the rest.
        let n = self.lock().lent.len();
        for _ in 0..n {
            let Some(index) = self.lock().next_lent() else { return };
            self.take_lent_from(index);
        }
    }

    fn take_lent_from(&self, index: u32) {
        let slot = self.page.slot(index);
        // Otherwise the thread is back and keeps its VP, wherever that is by now.
        let is_away = || slot.state.load(Ordering::Acquire) == AWAY;
        if self.user().is_none() || !is_away() || self.take_over(index, Slot::claim) {
            return;
        }
        if !is_away() || !slot.has_vp() {
            return;
        }
        // The thread has not left yet, or it is in a short section without events inside
        // `blocking`. It will not report the VP again.
        self.lock().lent.push(index);
        if !slot.await_unmask() {
            self.wake_one();
        }
    }
}
