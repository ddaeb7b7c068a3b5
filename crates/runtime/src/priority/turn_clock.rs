//! The clock of a turn: what the timekeeper and the carrier tell each other of a virtual processor.

use std::sync::atomic::{AtomicU64, Ordering};

/// Switches between two looks at what costs time to look at (clock, requests), at most; fewer where
/// those that run take their time, so that about 50 microseconds passes between two looks.
pub(crate) const SLOW_STEPS_EVERY: u32 = 61;

/// No time on the instance's clock.
pub(crate) const NEVER: u64 = u64::MAX;

/// What the keeper of the time knows and tells of a virtual processor.
#[derive(Debug)]
pub(crate) struct TurnClock {
    /// Number of switches at the last scan, and the begin of the turn that was under way then.
    /// Written by the timekeeper.
    pub(crate) switches: AtomicU64,
    pub(crate) since: AtomicU64,
    /// When a turn was ended, until the microprocess gives way or is seen to go on; else [`NEVER`].
    /// Written by the timekeeper.
    pub(crate) ended: AtomicU64,
    /// When its doorbell rang last.
    pub(crate) rung: AtomicU64,
    /// The turn that began at that number of switches is over. Taken by the carrier.
    pub(crate) over: AtomicU64,
    /// At that number of switches nothing else was queued, nor came since. By the carrier.
    pub(crate) alone: AtomicU64,
    /// At that number of switches one began, or went on that had been preempted: see
    /// [`Vp::note_may_run_long`]. By the carrier.
    pub(crate) went_on: AtomicU64,
    /// How long the running one may run, where the policy decides that for each anew. By the
    /// carrier.
    pub(crate) quantum: AtomicU64,
    /// How often Preempted or Changed was acted upon. By its carrier.
    pub(crate) answers: AtomicU64,
    /// Number of switches at which its descriptors were last given to be watched: of interest as
    /// long as there was no further one.
    pub(crate) watched: AtomicU64,
    /// When its first timer is due; none: [`NEVER`]. By its carrier.
    pub(crate) timer: AtomicU64,
}

impl TurnClock {
    pub(crate) fn new() -> TurnClock {
        TurnClock {
            switches: AtomicU64::new(u64::MAX),
            since: AtomicU64::new(0),
            ended: AtomicU64::new(NEVER),
            rung: AtomicU64::new(0),
            over: AtomicU64::new(u64::MAX),
            alone: AtomicU64::new(u64::MAX),
            went_on: AtomicU64::new(u64::MAX),
            quantum: AtomicU64::new(NEVER),
            answers: AtomicU64::new(0),
            watched: AtomicU64::new(u64::MAX),
            timer: AtomicU64::new(NEVER),
        }
    }

    /// Looks at it, `now`. True: there was a switch since the last look, and another turn has
    /// begun.
    pub(crate) fn notice(&self, switches: u64, now: u64) -> bool {
        let seen = self.switches.swap(switches, Ordering::Relaxed);
        if seen == switches {
            return false;
        }
        let ended = self.ended.swap(NEVER, Ordering::Relaxed);
        // The microprocess that followed when the last turn was ended runs since then. The time of
        // any other switch is not known.
        let followed = ended != NEVER && switches == seen.wrapping_add(1);
        self.since.store(if followed { ended } else { now }, Ordering::Relaxed);
        true
    }

    /// Ends the turn, `now`. If the microprocess goes on, its next turn begins.
    pub(crate) fn end(&self, now: u64) {
        self.over.store(self.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ended.store(now, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// The microprocess with the turn is seen to run on, whether the turn was ended or not.
    pub(crate) fn goes_on(&self) {
        self.ended.store(NEVER, Ordering::Relaxed);
    }

    /// What is `now` left of the turn, where it lasts for a `quantum`.
    pub(crate) fn left(&self, quantum: u64, now: u64) -> u64 {
        quantum.saturating_sub(now.saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    /// A timer was armed for `at`. Owner only.
    #[inline]
    pub(crate) fn sooner(&self, at: u64) {
        if at < self.timer.load(Ordering::Relaxed) {
            self.timer.store(at, Ordering::Relaxed);
        }
    }

    /// Whether its first timer was to fire by `now`.
    pub(crate) fn is_timer_due(&self, now: u64) -> bool {
        self.timer.load(Ordering::Relaxed) <= now
    }

    /// The first timer now. Owner only.
    pub(crate) fn note_timer(&self, first: Option<u64>) {
        self.timer.store(first.unwrap_or(NEVER), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
