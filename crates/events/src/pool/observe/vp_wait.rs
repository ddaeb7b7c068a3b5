//! Decides whether a returning thread should keep waiting for its virtual processor.

use std::sync::atomic::Ordering;

use crate::handoff::slot::Slot;
use crate::handoff::thread_state::ThreadState;
use crate::linux::watch;
use crate::pool::kernel::Kernel;

impl Kernel {
    /// Whether `vp` is stalled: it is unlikely to run what is queued next. It has no carrier, and
    /// the next one may wait for a lock that a microprocess holds (malloc's, or the C library's for
    /// its list of threads), starting a kernel thread. Or its carrier sleeps, in the user scheduler
    /// (P0 3.3.2) or unreported. For [`wait_for_vp`](crate::KernelThread::wait_for_vp): also true
    /// at times where nothing is wrong. Async-signal-safe.
    #[must_use]
    pub fn is_vp_stalled(&self, vp: u32) -> bool {
        let sleeps = |slot: &Slot| watch::sleeps(slot.tid.load(Ordering::Relaxed) as watch::Tid);
        let carrier = self.carrier(vp).filter(|slot| slot.carries(vp));
        self.watchdog.is_written_off(vp)
            || carrier.is_none_or(sleeps) && !self.has_awake_successor(vp)
    }

    /// Whether the kernel thread that `vp` was handed to, or a thread of the pool, is awake and
    /// lacks a core at most: it will carry the VP as soon as it has one. Async-signal-safe.
    fn has_awake_successor(&self, vp: u32) -> bool {
        // Each check reads /proc: of many threads that linger in the pool these are enough.
        const MOST: usize = 8;
        let is_in_pool = |slot: &&Slot| {
            let state = ThreadState::read(slot.state.load(Ordering::Relaxed));
            matches!(
                state,
                Some((ThreadState::Kernel | ThreadState::Runnable | ThreadState::Sleeping, false))
            )
        };
        let handed = self.handed[vp as usize].load(Ordering::Relaxed);
        let handed = (handed != 0).then(|| self.page.slot(handed));
        let mut those = handed.into_iter().chain(self.slots().filter(is_in_pool).take(MOST));
        those.any(|slot| watch::is_awake(slot.tid.load(Ordering::Relaxed) as watch::Tid))
    }
}
