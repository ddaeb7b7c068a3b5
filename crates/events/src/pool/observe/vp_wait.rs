//! Decides whether a returning thread should keep waiting for its virtual processor.

use std::sync::atomic::Ordering;

use crate::handoff::slot::Slot;
use crate::handoff::thread_state::ThreadState;
use crate::linux::watch;
use crate::pool::kernel::Kernel;

impl Kernel {
    /// Returns whether `vp` is stalled: it is unlikely to run the next microprocess in its queue.
    /// For [`wait_for_vp`](crate::KernelThread::wait_for_vp). Async-signal-safe.
    ///
    /// A VP stalls if its carrier sleeps, in the user scheduler (P0, 3.3.2) or unreported. It also
    /// stalls if it has no carrier and none is awake. The thread that starts a carrier may wait for
    /// a lock that a microprocess holds: malloc's, or the C library's for its list of threads. The
    /// result may be true although nothing is wrong.
    #[must_use]
    pub fn is_vp_stalled(&self, vp: u32) -> bool {
        let sleeps = |slot: &Slot| watch::sleeps(slot.tid.load(Ordering::Relaxed) as watch::Tid);
        let carrier = self.carrier(vp).filter(|slot| slot.carries(vp));
        self.watchdog.is_written_off(vp)
            || carrier.is_none_or(sleeps) && !self.has_awake_successor(vp)
    }

    /// Returns whether the kernel thread that `vp` was handed to, or a thread of the pool, is
    /// awake. Such a thread needs only a core to carry the VP. Async-signal-safe.
    fn has_awake_successor(&self, vp: u32) -> bool {
        // Each check reads /proc, and many threads may linger in the pool. So the number of checks
        // is bounded.
        const MOST: usize = 8;
        let is_in_pool = |slot: &&Slot| {
            let state = ThreadState::read(slot.state.load(Ordering::Relaxed));
            matches!(
                state,
                Some((ThreadState::Kernel | ThreadState::Runnable | ThreadState::Sleeping, false))
            )
        };
        let handed = self.carriers.handed(vp);
        let handed = (handed != 0).then(|| self.page.slot(handed));
        let mut those = handed.into_iter().chain(self.slots().filter(is_in_pool).take(MOST));
        those.any(|slot| watch::is_awake(slot.tid.load(Ordering::Relaxed) as watch::Tid))
    }
}
