//! Starvation: kernel threads run out, and all that there are sleep, with the virtual processors or without.
//!
//! None of them does anything wrong, so none is overridden: each keeps its virtual processor until it is back, and then things go
//! on, slowly. But what they wait for may be the doing of a microprocess that waits for a virtual processor. The watchdog, which is
//! no kernel thread of the pool's, notices ([`crate::watchdog`]), and the user scheduler, which knows what could run, says so.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::kernel::Kernel;
use crate::sched::{Starved, UserScheduler};
use crate::slot::Slot;
use crate::watch::{self, CpuClock, Place, Tid};

/// So long nothing may have changed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the watchdog has seen.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    /// CPU time of all, and hand-offs.
    what: Option<(u64, u64)>,
    age: Duration,
    said: bool,
}

impl Kernel {
    /// Whether a kernel thread was wanted and not to be had, and none is in the pool since. Out of date at once. Async-signal-safe.
    #[must_use]
    pub fn is_short_of_threads(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) && !self.has_spare()
    }

    /// Whether a virtual processor other than `vp` has nobody to run it, or only somebody who sleeps, and kernel threads are short:
    /// who has nothing to do for `vp` had better run that one ([`KernelThread::pass_on`](crate::KernelThread::pass_on)).
    #[must_use]
    pub fn is_another_in_need(&self, vp: u32) -> bool {
        self.is_short_of_threads()
            && (0..self.vps).filter(|other| *other != vp).any(|other| {
                let index = self.carriers[other as usize].load(Ordering::Relaxed);
                index == 0 || self.sleeps_untold(index).is_some()
            })
    }

    /// Where the kernel thread of slot `index` carries, and sleeps in a call of which the user scheduler does not know: which it is.
    fn sleeps_untold(&self, index: u32) -> Option<Tid> {
        let slot = self.page.slot(index);
        if self.watchdog.rests(index) || slot.is_masked() {
            return None;
        }
        Some(slot.tid.load(Ordering::Relaxed) as Tid).filter(|tid| watch::is_asleep(*tid))
    }

    /// By the watchdog, which looked last so long ago.
    pub(crate) fn look_for_starvation(&self, seen: &mut Starvation, elapsed: Duration, scheduler: &dyn UserScheduler) {
        let what = self.ran_if_all_sleep().map(|ran| (ran, self.hand_offs.load(Ordering::Relaxed)));
        if what.is_none() || seen.what != what {
            (seen.what, seen.age) = (what, Duration::ZERO);
            return;
        }
        seen.age += elapsed;
        if seen.age >= PATIENCE && !seen.said {
            let mut sleepers = self.slots().filter(|slot| slot.tid.load(Ordering::Relaxed) != 0);
            let for_good = sleepers.all(|slot| Kernel::place_of(slot).is_some_and(|place| place.is_for_good));
            seen.said = scheduler.starved(Starved { since: seen.age, for_good });
        }
    }

    /// Where in the kernel the kernel thread of `slot` sleeps, if it does.
    #[must_use]
    pub fn place_of(slot: &Slot) -> Option<Place> {
        Place::of(slot.tid.load(Ordering::Relaxed) as Tid)
    }

    /// CPU time of all kernel threads, if all of them sleep where nobody expects it.
    fn ran_if_all_sleep(&self) -> Option<u64> {
        if !self.is_short_of_threads() {
            return None;
        }
        let carriers = self.carriers.iter().map(|index| index.load(Ordering::Relaxed)).filter(|index| *index != 0);
        // First, since there are few of them.
        for index in carriers {
            self.sleeps_untold(index)?;
        }
        let mut ran = 0u64;
        for slot in self.slots() {
            let tid = slot.tid.load(Ordering::Relaxed) as Tid;
            if tid != 0 {
                ran = ran.wrapping_add(
                    Some(tid).filter(|tid| watch::is_asleep(*tid)).and_then(|tid| CpuClock::of(tid).read())?,
                );
            }
        }
        Some(ran)
    }
}
