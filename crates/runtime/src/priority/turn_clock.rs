//! Turn clock: shared state of the timekeeper and the carrier of a VP.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::priority::lost_time::{LostTime, Reading};

/// Maximum number of switches between two clock checks, which read the clock and serve requests.
/// Slow switches lower the number, so that about 50 microseconds pass between two checks.
pub(crate) const SLOW_STEPS_EVERY: u32 = 61;

/// Time value for "never" on the instance's clock.
pub(crate) const NEVER: u64 = u64::MAX;

/// Number of doublings of the interval between two scans of a VP that switches often.
const CALM: u32 = 4;
/// Switches between two scans from which on a VP counts as one that switches often.
const OFTEN: u64 = 4;

/// State of the current turn of a VP.
#[derive(Debug)]
pub(crate) struct TurnClock {
    /// Number of switches at the last scan, and the start of the turn that was in progress then.
    /// Written by the timekeeper.
    pub(crate) switches: AtomicU64,
    pub(crate) since: AtomicU64,
    /// When the timekeeper ended a turn; [`NEVER`] after the microprocess has given way or was seen
    /// to run on. Written by the timekeeper.
    pub(crate) ended: AtomicU64,
    /// When the VP's doorbell last rang.
    pub(crate) rung: AtomicU64,
    /// Number of switches at the start of the turn that is over. Consumed by the carrier.
    pub(crate) over: AtomicU64,
    /// Number of switches at which nothing else was queued, and nothing was queued since. Written
    /// by the carrier.
    pub(crate) alone: AtomicU64,
    /// Number of switches at which a microprocess started, or continued after a preemption: see
    /// [`Vp::note_may_run_long`]. Written by the carrier.
    pub(crate) went_on: AtomicU64,
    /// Quantum of the running microprocess, where the policy chooses it for each turn. Written by
    /// the carrier.
    pub(crate) quantum: AtomicU64,
    /// Whether the running microprocess gives way to others of its level that become runnable.
    /// Written by the carrier.
    pub(crate) gives_way: AtomicBool,
    /// Number of scans in a row, up to [`CALM`], that had nobody to interrupt: see
    /// [`slow_down`](TurnClock::slow_down). Written by the timekeeper.
    pub(crate) calm: AtomicU32,
    /// Time that the turn has lost to other threads of the core. Written by the timekeeper.
    pub(crate) lost_time: LostTime,
    /// Number of times that Preempted or Changed was handled. Written by the carrier.
    pub(crate) answers: AtomicU64,
    /// Number of switches at which the VP's descriptors were last given to be watched. Obsolete
    /// after a further switch.
    pub(crate) watched: AtomicU64,
    /// When the VP's first timer is due, or [`NEVER`]. Written by the carrier.
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
            gives_way: AtomicBool::new(false),
            calm: AtomicU32::new(0),
            lost_time: LostTime::default(),
            answers: AtomicU64::new(0),
            watched: AtomicU64::new(u64::MAX),
            timer: AtomicU64::new(NEVER),
        }
    }

    /// Scans the VP at time `now`. Returns true if there was a switch since the last scan, so that
    /// another turn has begun.
    pub(crate) fn notice(&self, switches: u64, now: u64) -> bool {
        let seen = self.switches.swap(switches, Ordering::Relaxed);
        if seen == switches {
            return false;
        }
        let ended = self.ended.swap(NEVER, Ordering::Relaxed);
        // The microprocess that followed the ended turn has run since that end. The time of any
        // other switch is unknown.
        let followed = ended != NEVER && switches == seen.wrapping_add(1);
        self.since.store(if followed { ended } else { now }, Ordering::Relaxed);
        true
    }

    /// Excludes from the turn the time that it has lost to other threads of the core. Returns
    /// whether that is most of the time since the last scan.
    pub(crate) fn exclude_lost(&self, reading: Reading) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        let passed = reading.now.saturating_sub(self.lost_time.last());
        let lost = self.lost_time.of_turn(reading.now.saturating_sub(since), reading);
        self.since.store(since + lost, Ordering::Relaxed);
        lost > passed / 2
    }

    /// Returns the time until the next scan of the VP, where `pace` is the shortest. Called before
    /// [`notice`](TurnClock::notice). `is_left` says that the running microprocess is not to be
    /// interrupted: its kernel thread has no core ([`exclude_lost`](TurnClock::exclude_lost)), or
    /// it is alone.
    ///
    /// Where the VP switches often, microprocesses run for less than their quanta, so that there is
    /// nobody to interrupt either. Each scan would only interrupt what shares a core with the
    /// timekeeper. The next microprocess that computes is noticed later by that, once.
    pub(crate) fn slow_down(&self, switches: u64, is_left: bool, pace: u64) -> u64 {
        let passed = switches.wrapping_sub(self.switches.load(Ordering::Relaxed));
        let is_calm = passed >= OFTEN || passed == 0 && is_left;
        let calm = if is_calm { (self.calm.load(Ordering::Relaxed) + 1).min(CALM) } else { 0 };
        self.calm.store(calm, Ordering::Relaxed);
        pace << calm
    }

    /// Ends the turn at time `now`. If the microprocess runs on, its next turn begins.
    pub(crate) fn end(&self, now: u64) {
        self.over.store(self.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ended.store(now, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// Records that the microprocess is seen to run on, whether its turn was ended or not.
    pub(crate) fn goes_on(&self) {
        self.ended.store(NEVER, Ordering::Relaxed);
    }

    /// Returns the rest of the turn at time `now`, for a turn of length `quantum`.
    pub(crate) fn left(&self, quantum: u64, now: u64) -> u64 {
        quantum.saturating_sub(now.saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    /// Records a timer armed for `at`. Owner only.
    #[inline]
    pub(crate) fn sooner(&self, at: u64) {
        if at < self.timer.load(Ordering::Relaxed) {
            self.timer.store(at, Ordering::Relaxed);
        }
    }

    /// Whether the first timer is due by `now`.
    pub(crate) fn is_timer_due(&self, now: u64) -> bool {
        self.timer.load(Ordering::Relaxed) <= now
    }

    /// Sets the first timer. Owner only.
    pub(crate) fn note_timer(&self, first: Option<u64>) {
        self.timer.store(first.unwrap_or(NEVER), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
