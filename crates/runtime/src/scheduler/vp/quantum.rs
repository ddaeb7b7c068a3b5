//! Run time of the running microprocess: quantum expiry, and the interval between clock checks.

use std::sync::atomic::Ordering;

use kumihimo_policy::Why;

use super::Vp;
use crate::config::ReadyOrder;
use crate::kernel_thread::gs_record::KernelThread;
use crate::microprocess::record::Mp;
use crate::priority::lost_time::Reading;
use crate::priority::turn_clock::SLOW_STEPS_EVERY;
use crate::process::clock::cpu_time;

/// Target interval between two clock checks, in nanoseconds.
pub(super) const LOOK_EVERY: u64 = 50_000;

/// Switches between two clock checks from which on the VP counts as switching fast: each run then
/// takes some microseconds at most.
const FAST: u32 = 8;

impl Vp {
    /// Whether microprocesses whose descriptors became ready go in front of the others of their
    /// level at this time, or behind them, in the order of arrival.
    ///
    /// A server with more connections than its caches hold walks through the kernel's cold socket
    /// structures for each request. Under [`ReadyOrder::Recent`] a recently served connection is
    /// served again while its data is still cached. Always in front, a few connections could starve
    /// the others. So three periods of `TURN` put them in front. The fourth period uses the order
    /// of arrival, and so brings the data of the next few connections into the caches.
    pub(in crate::scheduler) fn ready_go_first(&self, now: u64) -> bool {
        const TURN: u64 = 1 << 18;
        let instance = self.instance();
        instance.ready_order == ReadyOrder::Recent
            && !(now / TURN).is_multiple_of(4)
            // Putting the few ready microprocesses first would make batches small.
            && !instance.batch_config.gathers()
    }

    /// Whether the VP has switched often since the last clock check.
    pub(crate) fn switches_fast(&self) -> bool {
        self.look_every.get() >= FAST
    }

    /// Sets the countdown to the next clock check from the duration of the last one.
    pub(in crate::scheduler) fn pace(&self, now: u64) {
        let took = now.saturating_sub(self.looked_ns.replace(now)).max(1);
        let every = u64::from(self.look_every.get()) * LOOK_EVERY / took;
        let every = every.clamp(1, u64::from(SLOW_STEPS_EVERY)) as u32;
        self.look_every.set(every);
        self.countdown.set(every);
    }

    /// Requests a reschedule if the quantum of the running microprocess is over and others are
    /// runnable.
    pub(in crate::scheduler) fn check_turn(&self, now: u64) {
        if self.keeps_account {
            self.check_quantum(now);
        } else {
            self.check_passing(now);
        }
    }

    fn check_quantum(&self, now: u64) {
        let Some(mp) = self.running() else { return };
        if !self.queue.is_empty() && self.has_had_quantum(mp, now) {
            self.resched.set(Some(Why::QuantumOver));
        }
    }

    /// Whether `mp`, the running microprocess, has used its quantum by the time `now`, on the core.
    /// Makes a system call if it has by the time of day. Always true under a policy without
    /// accounting. Owner only; async-signal-safe.
    pub(crate) fn has_had_quantum(&self, mp: &Mp, now: u64) -> bool {
        if !self.keeps_account {
            return true;
        }
        let account = mp.account.get();
        let since = self.since_ns.get();
        let turn = now.saturating_sub(since);
        if account.ran_ns.saturating_add(turn) < account.quantum_ns {
            return false;
        }
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        let thread = unsafe { KernelThread::here() }.tid();
        let reading = Reading {
            thread,
            now,
            idle: self.counters.idle_ns.load(Ordering::Relaxed),
            on_core: cpu_time(),
        };
        let lost = self.lost_time.of_turn(turn, reading);
        self.since_ns.set(since + lost);
        account.ran_ns.saturating_add(turn - lost) >= account.quantum_ns
    }

    /// Checks the quantum under a policy without accounting, where no switch reads the clock. The
    /// turn of a microprocess is timed only from the second clock check at which it still runs. A
    /// microprocess that switches costs no clock reading.
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

    /// Adds the elapsed run time to the account of the running microprocess.
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

    /// Whether a microprocess on the level of the running one has a smaller key.
    pub(in crate::scheduler) fn has_smaller_key(&self) -> bool {
        let own = self.running().map_or(0, |mp| mp.account.get().key);
        self.keeps_account && self.queue.first_key(self.level.get()).is_some_and(|key| key < own)
    }

    /// Records whether the microprocess that is about to run gives way to those that become
    /// runnable: its key lies in the future, and theirs may not. Then ready descriptors interrupt
    /// it. `left` is the rest of its quantum in nanoseconds.
    ///
    /// A server's connections have keys of the past, and cost no more than a load here.
    #[inline]
    pub(in crate::scheduler) fn note_gives_way(&self, key: u64, left: u64) {
        let gives_way = key > self.since_ns.get();
        if gives_way != self.turn_clock.gives_way.load(Ordering::Relaxed) {
            self.turn_clock.gives_way.store(gives_way, Ordering::Relaxed);
        }
        if gives_way {
            self.watch_for_newcomers(left);
        }
    }

    /// Has the next slow steps poll the descriptors, if one of them may have interrupted a
    /// microprocess that gives way.
    pub(crate) fn look_for_newcomers(&self) {
        if self.turn_clock.gives_way.load(Ordering::Relaxed) {
            self.polled_ns.set(0);
        }
    }

    #[cold]
    fn watch_for_newcomers(&self, left: u64) {
        // The switch to the microprocess is to be counted yet.
        let switches = self.counters.switches.load(Ordering::Relaxed).wrapping_add(1);
        if self.poller.is_used() {
            self.turn_clock.watched.store(switches, Ordering::Relaxed);
            // On failure (no memory) the descriptors wait until the end of the quantum.
            let _ = self.instance().kernel.watch_once(self.index as u32, self.poller.as_fd());
        }
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        unsafe { KernelThread::here() }.kernel_slice.gives_way();
        // The timekeeper looks rarely at a VP that switches often.
        let at = self.since_ns.get().saturating_add(left / 2);
        let instance = self.instance();
        if at < instance.tick_at.load(Ordering::Relaxed) {
            instance.tick_at.store(at, Ordering::Relaxed);
            instance.kernel.wake_timekeeper();
        }
    }
}
