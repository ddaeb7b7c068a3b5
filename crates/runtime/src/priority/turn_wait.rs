//! How long a thread waits for its turn on a VP: until the VP is held up.
//!
//! What is known of it is kept with the VP and not by each waiter: one waiter looks for all, so
//! that the looks come as often with a thousand waiters as with one
//! ([`kumihimo_events::return_queue`] says how often).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use kumihimo_events::watch::CpuClock;

/// So many looks at a VP that is held up and makes no switch meanwhile are enough.
const ENOUGH: u32 = 5;
/// Of one that is suspended, which is to go on only if all else stands still: it may hold malloc's
/// lock.
const ENOUGH_SUSPENDED: u32 = 100;
/// The same for a VP that runs: nanoseconds of its kernel thread's CPU time. Not of the clock's:
/// that thread may have no core.
const ENOUGH_RUNNING: u64 = 10_000_000;
/// After so many nanoseconds without a look what was seen then says nothing.
const STALE: u64 = 50_000_000;

/// What the waiters have seen of a VP.
#[derive(Debug, Default)]
pub(crate) struct TurnWait {
    /// One waiter looks; the fields below are its own meanwhile.
    looks: AtomicBool,
    /// When the last look was, on the instance's clock.
    at: AtomicU64,
    /// At the last look: switches of the VP, its kernel thread, whether the running microprocess
    /// was to give way.
    switches: AtomicU64,
    carrier: AtomicU32,
    should: AtomicBool,
    /// Looks since then at which it was held up, less those at which it was not: for a moment each
    /// may seem to be the other.
    held_up: AtomicU32,
    /// CPU time of that kernel thread when that was first seen.
    since: AtomicU64,
}

impl TurnWait {
    /// Lets one waiter at a time `look`: what it says. False: another one looks.
    pub(crate) fn one_looks(&self, look: impl FnOnce() -> bool) -> bool {
        // Acquire and release: what the last one saw.
        if self.looks.swap(true, Ordering::Acquire) {
            return false;
        }
        let is_over = look();
        self.looks.store(false, Ordering::Release);
        is_over
    }

    /// Whether the wait is over, by what is seen of the VP. By the one that looks.
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

/// What a waiter sees of a VP at one look.
pub(crate) struct Seen {
    pub(crate) now: u64,
    pub(crate) switches: u64,
    /// The id of its kernel thread; 0: none.
    pub(crate) carrier: u32,
    /// The running microprocess is to give way.
    pub(crate) should: bool,
}
