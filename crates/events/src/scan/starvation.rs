//! Starvation: the limit on kernel threads is reached and every kernel thread sleeps.
//!
//! No kernel thread is at fault, so none is overridden: each keeps its VP until its call returns.
//! The calls may wait for a microprocess that itself waits for a VP, however, and then none
//! returns. The watchdog, which is not a thread of the pool, detects the state
//! ([`crate::watchdog`]); the user scheduler reports it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::linux::watch::{self, CpuClock, Tid};
use crate::pool::kernel::Kernel;
use crate::pool::sched::{Starved, UserScheduler};

/// The time without progress before starvation is reported.
const PATIENCE: Duration = Duration::from_secs(1);

/// The watchdog's state between two scans.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    /// CPU time of all kernel threads, and the number of hand-offs.
    progress: Option<(u64, u64)>,
    age: Duration,
    reported: bool,
}

impl Kernel {
    /// One scan by the watchdog, `elapsed` after the previous one.
    pub(crate) fn scan_for_starvation(
        &self,
        seen: &mut Starvation,
        elapsed: Duration,
        scheduler: &dyn UserScheduler,
    ) {
        let progress =
            self.cpu_time_if_all_sleep().map(|ran| (ran, self.hand_offs.load(Ordering::Relaxed)));
        if progress.is_none() || seen.progress != progress {
            (seen.progress, seen.age) = (progress, Duration::ZERO);
            return;
        }
        seen.age += elapsed;
        if seen.age >= PATIENCE && !seen.reported {
            let mut sleepers = self.slots().filter(|slot| slot.tid.load(Ordering::Relaxed) != 0);
            let for_good =
                sleepers.all(|slot| Kernel::wait_site(slot).is_some_and(|place| place.is_endless));
            seen.reported = scheduler.starved(Starved { since: seen.age, for_good });
        }
    }

    /// CPU time of all kernel threads, if every one sleeps outside of the user scheduler.
    fn cpu_time_if_all_sleep(&self) -> Option<u64> {
        if !self.is_short_of_threads() {
            return None;
        }
        let carriers = self
            .carriers
            .iter()
            .map(|index| index.load(Ordering::Relaxed))
            .filter(|index| *index != 0);
        // Carriers first: there are few of them.
        for index in carriers {
            self.sleeps_unreported(index)?;
        }
        let mut ran = 0u64;
        for slot in self.slots() {
            let tid = slot.tid.load(Ordering::Relaxed) as Tid;
            if tid != 0 {
                ran = ran.wrapping_add(
                    Some(tid)
                        .filter(|tid| watch::is_asleep(*tid))
                        .and_then(|tid| CpuClock::of(tid).read())?,
                );
            }
        }
        Some(ran)
    }
}
