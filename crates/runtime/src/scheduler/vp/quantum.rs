//! How long the running one has run: the turns of a quantum, and the pace of the looks at the
//! clock.

use std::sync::atomic::Ordering;

use kumihimo_policy::Why;

use super::Vp;
use crate::priority::turn_clock::SLOW_STEPS_EVERY;

/// Nanoseconds between two looks, about.
pub(super) const LOOK_EVERY: u64 = 50_000;

/// So many switches between two looks at the clock: each takes some microseconds at most.
const FAST: u32 = 8;

impl Vp {
    /// Whether those whose descriptors became ready go before the others of their level now; else
    /// they go behind them.
    ///
    /// A server with more connections than its caches hold pays for each request with a walk
    /// through the kernel's socket, cold. In front, a connection that was served a moment ago is
    /// served again while it is warm (1,000 connections: a quarter more requests a second); always
    /// in front, a few could keep all others waiting. So three turns in front, then one in the
    /// order of arrival, in which the next few get warm.
    pub(in crate::scheduler) fn ready_go_first(now: u64) -> bool {
        const TURN: u64 = 1 << 18;
        !(now / TURN).is_multiple_of(4)
    }

    /// Whether it has switched often lately.
    pub(crate) fn switches_fast(&self) -> bool {
        self.look_every.get() >= FAST
    }

    /// Sets the countdown by how long the last one took.
    pub(in crate::scheduler) fn pace(&self, now: u64) {
        let took = now.saturating_sub(self.looked_ns.replace(now)).max(1);
        let every = u64::from(self.look_every.get()) * LOOK_EVERY / took;
        let every = every.clamp(1, u64::from(SLOW_STEPS_EVERY)) as u32;
        self.look_every.set(every);
        self.countdown.set(every);
    }

    /// Asks the running microprocess to reschedule if its quantum is over and others want to run.
    pub(in crate::scheduler) fn check_turn(&self, now: u64) {
        if self.keeps_account {
            self.check_quantum(now);
        } else {
            self.check_passing(now);
        }
    }

    fn check_quantum(&self, now: u64) {
        let Some(mp) = self.running() else { return };
        let account = mp.account.get();
        let ran = account.ran_ns.saturating_add(now.saturating_sub(self.since_ns.get()));
        if ran >= account.quantum_ns && !self.queue.is_empty() {
            self.resched.set(Some(Why::QuantumOver));
        }
    }

    /// Under a policy that keeps no account nobody is timed at a switch. So the turn of one that
    /// passes switch points without leaving is timed from the second look at which it still runs:
    /// those that switch cost no look at the clock.
    fn check_passing(&self, now: u64) {
        let Some(mp) = self.running() else { return };
        let switches = self.counters.switches.load(Ordering::Relaxed);
        let (before, since) = self.turn.get();
        if before != switches {
            return self.turn.set((switches, 0));
        }
        let Some(quantum_ns) = self.instance().placer.turn_ns(mp) else { return };
        if since == 0 {
            self.turn.set((switches, now));
        } else if now.saturating_sub(since) >= quantum_ns && !self.queue.is_empty() {
            self.resched.set(Some(Why::QuantumOver));
        }
    }

    /// The running one's time goes onto its account.
    #[cold]
    pub(in crate::scheduler) fn book_time(&self) {
        let now = self.instance().now();
        if let Some(mp) = self.running() {
            let mut account = mp.account.get();
            account.ran_ns = account.ran_ns.saturating_add(now.saturating_sub(self.since_ns.get()));
            mp.account.set(account);
        }
        self.since_ns.set(now);
    }
}
