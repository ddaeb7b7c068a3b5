//! Whether it is of any use to wait for a virtual processor.

use std::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::sched::ThreadState;
use crate::slot::Slot;
use crate::watch;

impl Kernel {
    /// Whether `vp` is unlikely to come round to what runs next: it has no carrier, and the next
    /// one may be at a lock that a microprocess holds (malloc's, or the C library's for its list of
    /// threads), starting a kernel thread; or its kernel thread sleeps, in the user scheduler (P0
    /// 3.3.2) or unreported. For [`await_turn`](crate::KernelThread::await_turn): true at times
    /// where nothing is wrong. Async-signal-safe.
    #[must_use]
    pub fn is_held_up(&self, vp: u32) -> bool {
        let sleeps = |slot: &Slot| watch::sleeps(slot.tid.load(Ordering::Relaxed) as watch::Tid);
        let carrier = self.carrier(vp).filter(|slot| slot.carries(vp));
        self.watchdog.is_written_off(vp)
            || carrier.is_none_or(sleeps) && !self.is_somebody_coming(vp)
    }

    /// Whether the kernel thread that `vp` was handed to, or one of the pool, is awake and waits
    /// for a core at most: it takes what is to be carried as soon as it has one. Async-signal-safe.
    fn is_somebody_coming(&self, vp: u32) -> bool {
        // Each costs a look into /proc: of many that linger in the pool these are enough.
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
