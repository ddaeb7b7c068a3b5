//! Starvation: every kernel thread sleeps, and some keep their VPs, because the limit on kernel
//! threads is reached or the event source reports no sleeps.
//!
//! No kernel thread is at fault, so none is overridden: each keeps its VP until its call returns.
//! But the calls may wait for a microprocess that itself waits for a VP, and then none of them
//! returns. The watchdog detects this state, since its thread does not belong to the pool
//! ([`crate::watchdog`]). The user scheduler reports it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::linux::watch::{self, CpuClock, Tid};
use crate::pool::kernel::Kernel;
use crate::pool::sched::{Starved, StarvedCause, StarvedReply, UserScheduler};
use crate::source::Kind;

/// The time without progress before starvation is reported.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest time between two scans. A scan reads two files of /proc for each kernel thread.
const LONGEST_INTERVAL: Duration = Duration::from_secs(8);

/// All kernel threads sleep, and at least one keeps its VP meanwhile.
struct AllSleep {
    cause: StarvedCause,
    /// The CPU time of the kernel threads until now.
    ran: u64,
    /// No VP is idle.
    all_kept: bool,
}

/// The watchdog's state between two scans.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    /// CPU time of all kernel threads, and the number of hand-offs.
    progress: Option<(u64, u64)>,
    /// The time without progress.
    age: Duration,
    /// The time since the last scan.
    unscanned: Duration,
    /// The time between the last scan and the next one: it grows with the age.
    interval: Duration,
    reported: bool,
}

impl Starvation {
    /// Returns whether a scan is due, `elapsed` after the previous call. No scan is due once the
    /// user scheduler needs no further report.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        self.unscanned += elapsed;
        !self.reported && self.unscanned >= self.interval
    }

    /// Records the progress that a scan found. Returns the time without progress if it must be
    /// reported.
    fn note(&mut self, progress: Option<(u64, u64)>) -> Option<Duration> {
        let elapsed = std::mem::take(&mut self.unscanned);
        if progress.is_none() || self.progress != progress {
            *self = Starvation { progress, ..Starvation::default() };
            return None;
        }
        self.age += elapsed;
        if self.age < PATIENCE {
            return None;
        }
        self.interval = (self.age / 2).min(LONGEST_INTERVAL);
        Some(self.age)
    }

    /// Sets the time of the next scan according to the user scheduler's reply.
    fn obey(&mut self, reply: StarvedReply) {
        match reply {
            StarvedReply::Done => self.reported = true,
            StarvedReply::Later => {}
            StarvedReply::NothingWaits => self.interval = PATIENCE,
        }
    }
}

impl Kernel {
    /// Performs one pass of the watchdog, `elapsed` after the previous one.
    pub(crate) fn scan_for_starvation(
        &self,
        seen: &mut Starvation,
        elapsed: Duration,
        scheduler: &dyn UserScheduler,
    ) {
        if !seen.is_due(elapsed) {
            return;
        }
        let found = self.all_sleep();
        let hand_offs = self.hand_offs.load(Ordering::Relaxed);
        let since = seen.note(found.as_ref().map(|all| (all.ran, hand_offs)));
        if let (Some(all), Some(since)) = (found, since) {
            let mut sleepers = self.slots().filter(|slot| slot.tid.load(Ordering::Relaxed) != 0);
            let for_good = all.all_kept
                && sleepers.all(|slot| Kernel::wait_site(slot).is_some_and(|site| site.is_endless));
            seen.obey(scheduler.starved(Starved { since, for_good, cause: all.cause }));
        }
    }

    /// Returns what is known of the kernel threads if all of them sleep and some keep their VPs.
    fn all_sleep(&self) -> Option<AllSleep> {
        let cause = if self.is_short_of_threads() {
            StarvedCause::ThreadLimit
        } else if self.source() == Kind::Off {
            StarvedCause::NoSource
        } else {
            return None;
        };
        // Carriers first: there are few of them.
        let (mut kept, mut idle) = (false, false);
        for index in self.carriers.all().filter(|index| *index != 0) {
            if self.sleeps_unreported(index).is_some() {
                kept = true;
            } else if cause == StarvedCause::NoSource && self.watchdog.rests(index) {
                // Another VP takes no work from a queue whose VP is kept.
                idle = true;
            } else {
                return None;
            }
        }
        if !kept {
            return None;
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
        Some(AllSleep { cause, ran, all_kept: !idle })
    }
}

#[cfg(test)]
mod tests;
