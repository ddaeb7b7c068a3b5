//! Take-over: a spare claims the VP of a kernel thread that sleeps, or lends it.

use std::sync::atomic::Ordering;

use crate::handoff::slot::{self, Claim, Slot};
use crate::handoff::thread_state::AWAY;
use crate::pool::kernel::Kernel;
use crate::pool::record::Step;
use crate::pool::sched::Answer;
use crate::preempt::signal_handler;
use crate::report::fatal::fatal;

impl Kernel {
    /// *Blocked*, told by the source: the kernel thread of slot `index` may sleep, or may have
    /// slept.
    pub(crate) fn blocked(&self, index: u32) {
        // What the kernel has lent is accepted or not. A carrier that is back by now keeps its VP:
        // none is taken from one that runs.
        self.take_over(index, if self.source.lends(index) { Slot::accept } else { Slot::claim });
    }

    /// Claims the VP of slot `index`, and asks the user scheduler what comes next.
    fn take_over(&self, index: u32, claim: fn(&Slot) -> Claim) {
        let Some(scheduler) = self.user() else { return };
        let slot = self.page.slot(index);
        let time = slot.times.load(Ordering::Acquire);
        let state = slot.state.load(Ordering::Relaxed);
        // Before the claim: the carrier, if it loses its VP, takes itself off the count.
        self.bound.fetch_add(1, Ordering::Relaxed);
        let Claim::Taken(token) = claim(slot) else {
            self.bound.fetch_sub(1, Ordering::Release);
            return;
        };
        // Against a VP that there is not, or that is not here: nobody would have it, or two.
        let vp = slot::vp_of(token, self.vps).filter(|vp| self.clear_carrier(*vp, index));
        let Some(vp) = vp else {
            fatal(format_args!(
                "slot {index} gave up {token:#x}, which its kernel thread does not carry"
            ));
        };
        // Unless it is back by now, and has noted that.
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
    }

    /// Whether returns are to be told by a trap.
    pub(crate) fn wants_returns(&self) -> bool {
        self.wants_returns.load(Ordering::Relaxed)
    }

    /// Requests no more traps once the application has replaced our handler. It still gets those on
    /// their way.
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
            "kumihimo: the handler of SIGTRAP was replaced after the runtime started: a microprocess that comes back from a block waits for its \
             virtual processor only when it next enters the runtime; install such a handler before, and it gets its own SIGTRAPs"
        );
    }

    /// *Blocked*, said by the kernel threads themselves.
    pub(crate) fn take_lent(&self) {
        let overruled = std::mem::take(&mut self.lock().overruled);
        for index in overruled {
            // Masked, or left over by a thread that gets no answer: the watchdog comes again. As
            // with a sleeping one, the microprocess finds out when it next enters the user
            // scheduler.
            self.take_over(index, Slot::claim);
        }
        // One at a time: if the user scheduler does not answer, others find the rest.
        let n = self.lock().lent.len();
        for _ in 0..n {
            let Some(index) = self.lock().next_lent() else { return };
            let slot = self.page.slot(index);
            if slot.state.load(Ordering::Acquire) != AWAY {
                // It is back already and keeps its VP, wherever that is by now.
            } else if slot.is_masked() {
                // Not yet away: it wakes somebody when it is.
                self.lock().lent.push(index);
            } else {
                self.take_over(index, Slot::claim);
            }
        }
    }
}
