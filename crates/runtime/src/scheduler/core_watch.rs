//! Observation of the cores that the process may use, for [`crate::scheduler::retirement`].

use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_events::cores::{Cores, Watch};

/// Interval between two looks at the quota and the affinity, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;

/// Observes the cores that the process may use.
pub(crate) struct CoreWatch {
    /// `None` if the number of VPs is fixed.
    watch: Option<Watch>,
    /// When the next look is due, on the instance's clock.
    next: AtomicU64,
}

impl CoreWatch {
    pub(crate) fn new(follows: bool) -> CoreWatch {
        CoreWatch { watch: follows.then(Watch::new), next: AtomicU64::new(LOOK_EVERY) }
    }

    /// Returns what the calling kernel thread may use, if a look is due at the time `now`. Reads
    /// small files then.
    pub(crate) fn look_if_due(&self, now: u64) -> Option<Cores> {
        let watch = self.watch.as_ref()?;
        let next = self.next.load(Ordering::Relaxed);
        if now < next {
            return None;
        }
        let then = now + LOOK_EVERY;
        // Fails if another thread has taken over the timekeeper's role.
        let mine = self.next.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed);
        mine.is_ok().then(|| watch.look())
    }
}
