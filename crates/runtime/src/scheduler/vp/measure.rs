//! Measurements of microprocesses on a VP: waits, wake-up latency, and exact CPU time on request.
//!
//! Reading the clock costs a third of a switch. So a wait takes its times from the VP's *coarse
//! clock*, which has the result of the last reading: at a clock check (about every 50 us), where
//! the VP begins or ends to idle, and at a scan of the timekeeper. A wait with which the VP begins
//! to idle is timed exactly. Wake-ups are timed exactly, but only some of them: one after each
//! [`TIME_WAKE_EVERY`] of a VP, and those from threads without a VP.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Vp;
use crate::kernel_thread::gs_record::KernelThread;
use crate::microprocess::record::Mp;
use crate::microprocess::wait_reason::Wait;
use crate::process::clock;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::bump;

/// Interval between two timed wake-ups of a VP, in nanoseconds.
const TIME_WAKE_EVERY: u64 = 100_000;

/// Turns from this length on, in nanoseconds, may contain time of other kernel threads.
const LONG_TURN: u64 = 100_000;

/// Number of the current period of exact accounting; 0: accounting is off.
static EXACT: AtomicU32 = AtomicU32::new(0);

/// Whether each switch reads the clock.
pub(crate) fn is_exact() -> bool {
    EXACT.load(Ordering::Relaxed) != 0
}

/// Begins or ends the exact accounting.
pub(crate) fn set_exact(on: bool) {
    static PERIODS: AtomicU32 = AtomicU32::new(1);
    if on == is_exact() {
        return;
    }
    let period = if on { PERIODS.fetch_add(1, Ordering::Relaxed).max(1) } else { 0 };
    EXACT.store(period, Ordering::Relaxed);
    instance::visit(|instance| {
        for vp in instance.iter().flat_map(|instance| &instance.vps) {
            vp.books.store(vp.keeps_account || on, Ordering::Relaxed);
        }
    });
}

/// Number of buckets of a [`Histogram`].
pub(crate) const BUCKETS: usize = 32;

/// Numbers by powers of two: bucket 0 counts zeros, bucket n those from 2^(n-1) to below 2^n, and
/// the last one all above, too. One writer; any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl Histogram {
    pub(crate) fn count(&self, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        bump(&self.0[bucket.min(BUCKETS - 1)]);
    }

    pub(crate) fn read(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0[bucket].load(Ordering::Relaxed))
    }
}

impl Vp {
    /// Returns the time of the last reading of the clock.
    #[inline(always)]
    pub(crate) fn coarse_now(&self) -> u64 {
        self.coarse_ns.load(Ordering::Relaxed)
    }

    /// Records that the clock was read.
    #[inline]
    pub(crate) fn set_coarse(&self, now: u64) {
        self.coarse_ns.store(now, Ordering::Relaxed);
    }

    /// Has the next wake-up timed, if the last one was long enough ago. Owner only.
    pub(in crate::scheduler) fn time_wake_at(&self, now: u64) {
        if now.saturating_sub(self.wake_timed_at.get()) >= TIME_WAKE_EVERY {
            self.times_next_wake.set(true);
        }
    }

    /// Records the time of a wake-up if it is to be timed. Holder of `mp` only, before it is
    /// queued.
    #[inline(always)]
    pub(in crate::scheduler) fn note_wake(&self, mp: &Mp) {
        if self.times_next_wake.get() {
            self.times_next_wake.set(false);
            self.wake_timed_at.set(self.instance().time_wake(mp));
        }
    }

    /// Counts the wait that the running microprocess `mp` has ended.
    #[inline(always)]
    pub(crate) fn finish_wait(&self, mp: &Mp) {
        let since = mp.waits_since.load(Ordering::Relaxed);
        let kind = mp.wait_kind.load(Ordering::Relaxed) & Wait::KIND;
        let time = self.coarse_now().wrapping_sub(since);
        mp.wait_counters().count(kind, time);
        if mp.wake_is_timed.get() {
            self.finish_timed_wake(mp);
        }
    }

    /// Under exact accounting, adds the time since the last call to the microprocess that has run
    /// since, and notes the one that runs from here. Owner only.
    pub(in crate::scheduler) fn account_exactly(&self, next: *const Mp) {
        let period = EXACT.load(Ordering::Relaxed);
        if period == 0 {
            return;
        }
        let now = self.instance().now();
        let since = self.exact_since.load(Ordering::Relaxed);
        let ran = self.exact_running.load(Ordering::Relaxed);
        let is_same = self.exact_period.load(Ordering::Relaxed) == period;
        self.exact_since.store(now, Ordering::Relaxed);
        self.sampled_turn.store(0, Ordering::Relaxed);
        self.exact_running.store(next.cast_mut(), Ordering::Relaxed);
        self.exact_period.store(period, Ordering::Relaxed);
        // SAFETY: null or a record; records live for ever.
        match unsafe { ran.as_ref() }.filter(|_| is_same) {
            Some(mp) => {
                let time = self.without_other_threads(now.saturating_sub(since), now);
                mp.counters.add_cpu(&mp.is_counted, time);
            }
            None => drop(self.since_cpu_clock(now)),
        }
    }

    /// Adds sampled CPU time of the microprocess `id` to its present turn. Returns false if exact
    /// accounting has not begun on this VP, which has not switched since it was turned on.
    /// Async-signal-safe.
    pub(crate) fn sample_turn(&self, id: u64, time: u64) -> bool {
        let period = EXACT.load(Ordering::Relaxed);
        if period == 0 || self.exact_period.load(Ordering::Relaxed) != period {
            return false;
        }
        // SAFETY: null or a record; records live for ever.
        let runs = unsafe { self.exact_running.load(Ordering::Relaxed).as_ref() };
        if runs.is_some_and(|mp| mp.reference().id() == id) {
            self.sampled_turn.fetch_add(time, Ordering::Relaxed);
        }
        true
    }

    /// Under exact accounting, returns the running microprocess and the CPU time of its present
    /// turn. The counters get that time when the turn ends. It is accurate to an interval of the
    /// samples.
    fn unfinished_turn(&self, now: u64) -> Option<(u64, u64)> {
        let period = EXACT.load(Ordering::Relaxed);
        let runs = self.exact_running.load(Ordering::Relaxed);
        let since = self.exact_since.load(Ordering::Relaxed);
        let sampled = self.sampled_turn.load(Ordering::Relaxed);
        // SAFETY: null or a record; records live for ever.
        let mp = unsafe { runs.as_ref() }?;
        let is_present = period != 0 && self.exact_period.load(Ordering::Relaxed) == period;
        is_present.then(|| (mp.reference().id(), sampled.min(now.saturating_sub(since))))
    }

    /// Returns the CPU time of a turn of `time` nanoseconds that ends now. If the kernel ran
    /// another thread on the core meanwhile, the turn is long. So only long turns read the CPU
    /// clock.
    fn without_other_threads(&self, time: u64, now: u64) -> u64 {
        if time < LONG_TURN {
            return time;
        }
        let away = self.since_cpu_clock(now).map_or(0, |(time, cpu)| time.saturating_sub(cpu));
        time.saturating_sub(away)
    }

    /// Reads the CPU clock of the calling kernel thread. Returns the time and the CPU time since
    /// its last reading, if that was on the same thread.
    fn since_cpu_clock(&self, now: u64) -> Option<(u64, u64)> {
        // SAFETY: the caller runs on a kernel thread of the runtime: GS is set.
        let tid = unsafe { KernelThread::here() }.tid();
        let cpu = clock::cpu_time();
        let (then, now_read, cpu_then) = self.exact_cpu.replace((tid, now, cpu));
        (then == tid).then(|| (now - now_read, cpu - cpu_then))
    }

    /// As [`account_exactly`](Vp::account_exactly), where the running microprocess leaves the VP
    /// with its kernel thread. Holder of the VP only.
    pub(crate) fn account_block(&self) {
        if self.books.load(Ordering::Relaxed) {
            self.account_exactly(std::ptr::null());
        }
    }

    #[cold]
    fn finish_timed_wake(&self, mp: &Mp) {
        mp.wake_is_timed.set(false);
        let woken_at = mp.counters.woken_at.load(Ordering::Relaxed);
        let latency = self.instance().now().saturating_sub(woken_at);
        mp.counters.count_latency(latency);
        mp.is_counted.store(true, Ordering::Relaxed);
        self.wake_latency.count(latency);
    }
}

impl Instance {
    /// Returns the microprocesses that run under exact accounting, and the CPU time of their turns,
    /// which their counters do not have yet.
    pub(crate) fn unfinished_turns(&self) -> Vec<(u64, u64)> {
        let now = self.now();
        self.vps.iter().filter_map(|vp| vp.unfinished_turn(now)).collect()
    }

    /// Records the time of a wake-up, and returns it. The caller holds `mp`, which is not queued
    /// yet.
    pub(crate) fn time_wake(&self, mp: &Mp) -> u64 {
        let now = self.now();
        mp.counters.woken_at.store(now, Ordering::Relaxed);
        mp.wake_is_timed.set(true);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_counts_by_powers_of_two() {
        let all = Histogram::default();
        for value in [0, 1, 2, 3, 4, 1 << 30, u64::MAX] {
            all.count(value);
        }
        let read = all.read();
        assert_eq!(read[..4], [1, 1, 2, 1]);
        assert_eq!(read[BUCKETS - 1], 2);
        assert_eq!(read.iter().sum::<u64>(), 7);
    }
}
