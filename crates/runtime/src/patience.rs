//! How long a thread waits for its turn on a VP: until the VP is held up.
//!
//! What is known of it is kept with the VP and not by each waiter: one waiter looks for all, so
//! that the looks come as often with a thousand waiters as with one
//! ([`kumihimo_events::return_queue`] says how often).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use kumihimo_events::preempt::Means;
use kumihimo_events::watch::CpuClock;

use crate::instance::Instance;
use crate::record::Mp;

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
pub(crate) struct Patience {
    /// Somebody looks. What follows is his meanwhile.
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

impl Patience {
    /// Whether VP number `index` makes no switch although it should: it is held up
    /// ([`Kernel::is_vp_stalled`](kumihimo_events::Kernel::is_vp_stalled)), not idle; or the
    /// running microprocess is to give way and does not, since it may spin for what a waiter holds
    /// where it cannot be interrupted. That another one has its turn is no reason, nor a moment's
    /// sleep: the waiter would compute beside it, on more kernel threads than there are VPs, so
    /// that the VPs' own get a core more rarely still.
    ///
    /// If so, all others that wait for it go on, too. By one of them, `mp`. Async-signal-safe.
    pub(crate) fn is_over(&self, instance: &Instance, index: usize, mp: &Mp) -> bool {
        instance.keep_time_if_nobody_does();
        // Acquire and release: what the last one saw.
        if self.looks.swap(true, Ordering::Acquire) {
            return false;
        }
        let suspended = mp.state.is_suspended();
        let is_over = self.look(instance, index, suspended);
        self.looks.store(false, Ordering::Release);
        if is_over && !suspended {
            instance.kernel.release_waiters(index as u32);
        }
        is_over
    }

    fn look(&self, instance: &Instance, index: usize, suspended: bool) -> bool {
        let (vp, kernel) = (&instance.vps[index], &instance.kernel);
        let carrier =
            kernel.carrier(index as u32).map_or(0, |slot| slot.tid.load(Ordering::Relaxed));
        let should = kernel.preemption() == Means::Off || kernel.is_raised(index as u32);
        let switches = vp.counters.switches.load(Ordering::Relaxed);
        let ran = || CpuClock::of(carrier as i32).read().unwrap_or(0);
        let seen = (
            self.switches.swap(switches, Ordering::Relaxed),
            self.carrier.swap(carrier, Ordering::Relaxed),
            self.should.swap(should, Ordering::Relaxed),
        );
        let now = instance.now();
        let is_stale = now.saturating_sub(self.at.swap(now, Ordering::Relaxed)) >= STALE;
        if is_stale || seen != (switches, carrier, should) {
            self.held_up.store(0, Ordering::Relaxed);
            self.since.store(ran(), Ordering::Relaxed);
            return false;
        }
        let held_up = self.held_up.load(Ordering::Relaxed);
        if !vp.idle.cell.is_sleeping() && kernel.is_vp_stalled(index as u32) {
            self.held_up.store(held_up.saturating_add(1), Ordering::Relaxed);
            return held_up + 1 >= if suspended { ENOUGH_SUSPENDED } else { ENOUGH };
        }
        self.held_up.store(held_up.saturating_sub(1), Ordering::Relaxed);
        should
            && !suspended
            && ran().saturating_sub(self.since.load(Ordering::Relaxed)) >= ENOUGH_RUNNING
    }
}
