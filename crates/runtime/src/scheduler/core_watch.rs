//! Observation of the cores that the process may use, for [`crate::scheduler::retirement`].

use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_arbiter::slot::CELLS;
use kumihimo_events::cores::{self, Cores, Watch};
use kumihimo_events::limit;
use kumihimo_queue::MAX_VPS;

/// Interval between two looks at the quota and the affinity, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;

/// Descriptors of the process's limit for each VP for which there is room: a VP has two.
const DESCRIPTORS_PER_ROOM: usize = 16;

/// Returns the default number of VPs for which there is room, and of those in use at the start. One
/// is in use per core that the process may use, where a CPU quota counts as cores, rounded up.
/// There is room for each online core.
pub(crate) fn default_vps() -> (usize, usize) {
    let open = Cores::of_process().count().min(MAX_VPS);
    // An address space with more VPs than a row of the board has cells would share no cores.
    let most = (limit::descriptors() / DESCRIPTORS_PER_ROOM).min(CELLS);
    (cores::online().min(most).max(open), open)
}

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

#[cfg(test)]
mod tests;
