//! How long a thread waits for its turn on a VP: until the VP is stalled.
//!
//! The observations are stored with the VP, not with each waiter. One waiter observes the VP for
//! all, so that a thousand waiters cause as many observations as one
//! ([`kumihimo_events::return_queue`] defines the rate).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use kumihimo_events::watch::CpuClock;

/// Number of observations of a stalled VP without a switch after which the wait ends.
const ENOUGH: u32 = 5;
/// The same for a suspended waiter, which continues only if everything else stands still: it may
/// hold malloc's lock.
const ENOUGH_SUSPENDED: u32 = 100;
/// CPU time of the kernel thread of a running VP after which the wait ends, in nanoseconds. CPU
/// time rather than wall-clock time, because that thread may have no core.
const ENOUGH_RUNNING: u64 = 10_000_000;
/// Age in nanoseconds from which on the last observation is discarded.
const STALE: u64 = 50_000_000;

/// The waiters' observations of a VP.
#[derive(Debug, Default)]
pub(crate) struct TurnWait {
    /// Whether a waiter is observing the VP. That waiter owns the fields below.
    looks: AtomicBool,
    /// Time of the last observation, on the instance's clock.
    at: AtomicU64,
    /// At the last observation: the VP's switches, its kernel thread, and whether the running
    /// microprocess should give way.
    switches: AtomicU64,
    carrier: AtomicU32,
    should: AtomicBool,
    /// Number of observations since then at which the VP was stalled, less those at which it was
    /// not: for a moment either state may look like the other.
    held_up: AtomicU32,
    /// CPU time of that kernel thread at the first such observation.
    since: AtomicU64,
}

impl TurnWait {
    /// Calls `look` unless another waiter does so, and returns its result; false if another waiter
    /// does.
    pub(crate) fn one_looks(&self, look: impl FnOnce() -> bool) -> bool {
        // Acquire and release: publish the observations of the last waiter.
        if self.looks.swap(true, Ordering::Acquire) {
            return false;
        }
        let is_over = look();
        self.looks.store(false, Ordering::Release);
        is_over
    }

    /// Whether the wait is over after the observation `vp`. Called by the observing waiter.
    pub(crate) fn is_over(
        &self,
        vp: Seen,
        suspended: bool,
        is_held_up: impl FnOnce() -> bool,
    ) -> bool {
        let ran = || CpuClock::of(vp.carrier as i32).read().unwrap_or(0);
        let seen = (
            self.switches.swap(vp.switches, Ordering::Relaxed),
            self.carrier.swap(vp.carrier, Ordering::Relaxed),
            self.should.swap(vp.should, Ordering::Relaxed),
        );
        let is_stale = vp.now.saturating_sub(self.at.swap(vp.now, Ordering::Relaxed)) >= STALE;
        if is_stale || seen != (vp.switches, vp.carrier, vp.should) {
            self.held_up.store(0, Ordering::Relaxed);
            self.since.store(ran(), Ordering::Relaxed);
            return false;
        }
        let held_up = self.held_up.load(Ordering::Relaxed);
        if is_held_up() {
            self.held_up.store(held_up.saturating_add(1), Ordering::Relaxed);
            return held_up + 1 >= if suspended { ENOUGH_SUSPENDED } else { ENOUGH };
        }
        self.held_up.store(held_up.saturating_sub(1), Ordering::Relaxed);
        vp.should
            && !suspended
            && ran().saturating_sub(self.since.load(Ordering::Relaxed)) >= ENOUGH_RUNNING
    }
}

/// An observation of a VP by a waiter.
pub(crate) struct Seen {
    pub(crate) now: u64,
    pub(crate) switches: u64,
    /// ID of the VP's kernel thread, or 0.
    pub(crate) carrier: u32,
    /// Whether the running microprocess should give way.
    pub(crate) should: bool,
}
