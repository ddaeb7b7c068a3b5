//! Watch on the holder of a core. Decides the waiter's next action from the state of the holder's
//! kernel thread and from whether the holder acknowledges requests.
//!
//! Pure functions on times, which are CLOCK_MONOTONIC in nanoseconds.

use std::time::Duration;

use crate::board::overrides::Reason;
use crate::clock::nanoseconds;
use crate::holder::thread_status::ThreadStatus;
use crate::slot::{VpId, Word};

/// Time limits for holders of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Time after which a waiter of the same level gets the core.
    pub quantum: Duration,
    /// Time within which a holder must acknowledge a request or leave the core.
    pub watchdog: Duration,
}

impl Default for Bounds {
    /// Returns a quantum of 4 ms and a bound of 10 ms.
    fn default() -> Bounds {
        Bounds { quantum: Duration::from_millis(4), watchdog: Duration::from_millis(10) }
    }
}

/// Interval from the start of the wait to the first check of the holder; it doubles with each
/// check.
pub(crate) const FIRST_CHECK: u64 = 500_000;
/// Number of bounds after which a holder that gets no CPU time from the kernel is overridden.
const STARVED: u64 = 10;

/// Watch on the holder for which a VP waits.
#[derive(Clone, Copy, Default)]
pub(crate) struct HolderWatch {
    identity: u64,
    holder: Option<VpId>,
    since: u64,
    /// When the holder was asked for an acknowledgement.
    asked: Option<u64>,
    /// CPU time of the holder when it was notified; 0 if unknown.
    notified: Option<u64>,
    /// CPU time of the holder if it slept at the last check.
    last_sleep: Option<u64>,
    pub(crate) interval: u64,
    /// Exponent of two of the number of quanta before the next request. Increases with each
    /// acknowledgement.
    backoff: u32,
}

/// Maximum of `backoff`: four quanta.
const MAX_BACKOFF: u32 = 2;

/// Action of a waiter towards the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchAction {
    Nothing,
    Ask,
    Notify,
    Override(Reason),
}

impl HolderWatch {
    pub(crate) fn of(identity: u64, now: u64) -> HolderWatch {
        HolderWatch { identity, since: now, interval: FIRST_CHECK, ..HolderWatch::default() }
    }

    /// Updates the watch with the slot's current word.
    pub(crate) fn observe(&mut self, word: Word, now: u64, bounds: &Bounds) {
        if self.identity == word.identity() {
            return;
        }
        let is_same = self.holder == word.holder() && self.asked.is_some() && !word.is_given();
        let its = word.identity();
        *self = if is_same { self.answered(its, now, bounds) } else { HolderWatch::of(its, now) };
        self.holder = word.holder();
    }

    /// Returns the watch after the holder has acknowledged a request by writing a new word.
    fn answered(&self, identity: u64, now: u64, bounds: &Bounds) -> HolderWatch {
        let backoff = (self.backoff + 1).min(MAX_BACKOFF);
        HolderWatch {
            backoff,
            interval: nanoseconds(bounds.quantum) << backoff,
            ..HolderWatch::of(identity, now)
        }
    }

    /// Whether the holder is not to be checked yet: it has held the core only briefly, or it has
    /// acknowledged earlier requests. A check costs as much as a call through a gate. A VP called
    /// by a holder that is about to leave waits only microseconds.
    pub(crate) fn is_within_grace(&self, now: u64, bounds: &Bounds) -> bool {
        let quantum = nanoseconds(bounds.quantum) << self.backoff;
        let has_had = now.saturating_sub(self.since);
        has_had < FIRST_CHECK || self.backoff != 0 && self.asked.is_none() && has_had < quantum
    }

    /// Decides the next action after a check of the holder. `given`: the holder was given the core
    /// and has not accepted it yet.
    pub(crate) fn next_action(
        &mut self,
        status: ThreadStatus,
        given: bool,
        now: u64,
        bounds: &Bounds,
    ) -> WatchAction {
        let (quantum, bound) = (nanoseconds(bounds.quantum), nanoseconds(bounds.watchdog));
        let waited = now.saturating_sub(self.since);
        self.interval = (self.interval * 2).min((bound / 4).max(FIRST_CHECK));
        let used = match status {
            ThreadStatus::Gone => return WatchAction::Override(Reason::Dead),
            ThreadStatus::Stopped => return WatchAction::Override(Reason::Stopped),
            // A VP that was given the core sleeps until the giver has woken it.
            ThreadStatus::Asleep(used)
                if self.last_sleep == Some(used) && (!given || waited >= bound) =>
            {
                return WatchAction::Override(Reason::Asleep);
            }
            ThreadStatus::Asleep(used) => {
                self.last_sleep = Some(used);
                used
            }
            ThreadStatus::Running(used) => {
                self.last_sleep = None;
                used
            }
            ThreadStatus::Unknown => {
                self.last_sleep = None;
                u64::MAX
            }
        };
        let Some(asked) = self.asked else {
            if waited < quantum << self.backoff {
                return WatchAction::Nothing;
            }
            self.asked = Some(now);
            self.interval = FIRST_CHECK;
            return WatchAction::Ask;
        };
        let waited = now.saturating_sub(asked);
        // A thread that was runnable since the notification but got no CPU time could not
        // acknowledge, and gets more time. Its CPU time before the notification does not count,
        // because it may have passed no step since.
        let could_answer = self.notified.is_some_and(|then| used.saturating_sub(then) >= bound / 8)
            || waited >= bound.saturating_mul(STARVED);
        if waited >= bound && could_answer {
            return WatchAction::Override(Reason::Unresponsive);
        }
        if self.notified.is_none() {
            self.notified = Some(if used == u64::MAX { 0 } else { used });
            return WatchAction::Notify;
        }
        WatchAction::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn dead_stopped_or_sleeping_holder_is_overridden() {
        let bounds = Bounds::default();
        let mut watched = HolderWatch::of(1, 0);
        let mut next_action = |status, now| watched.next_action(status, false, now, &bounds);
        assert_eq!(next_action(ThreadStatus::Stopped, 1), WatchAction::Override(Reason::Stopped));
        assert_eq!(next_action(ThreadStatus::Gone, 1), WatchAction::Override(Reason::Dead));
        // Asleep at two consecutive checks, without CPU time in between.
        assert_eq!(next_action(ThreadStatus::Asleep(5), 1), WatchAction::Nothing);
        assert_eq!(next_action(ThreadStatus::Asleep(6), 2), WatchAction::Nothing);
        assert_eq!(next_action(ThreadStatus::Running(6), 3), WatchAction::Nothing);
        assert_eq!(next_action(ThreadStatus::Asleep(6), 4), WatchAction::Nothing);
        assert_eq!(next_action(ThreadStatus::Asleep(6), 5), WatchAction::Override(Reason::Asleep));
    }

    #[test]
    fn woken_receiver_has_time_until_the_bound() {
        let mut watched = HolderWatch::of(1, 0);
        let mut next_action =
            |now| watched.next_action(ThreadStatus::Asleep(5), true, now, &Bounds::default());
        assert_eq!(next_action(MS), WatchAction::Nothing);
        assert_eq!(next_action(2 * MS), WatchAction::Nothing);
        assert_eq!(next_action(10 * MS), WatchAction::Override(Reason::Asleep));
    }

    #[test]
    fn acknowledging_holder_is_exempt_for_at_most_four_quanta() {
        let bounds = Bounds::default();
        let (mut watched, mut now) = (HolderWatch::of(1, 0), 0);
        for quanta in [1, 2, 4, 4] {
            assert!(watched.is_within_grace(now, &bounds));
            assert_eq!(watched.is_within_grace(now + FIRST_CHECK, &bounds), quanta > 1);
            let asked = now + quanta * 4 * MS;
            assert!(!watched.is_within_grace(asked, &bounds));
            assert_eq!(
                watched.next_action(ThreadStatus::Running(now), false, asked - 1, &bounds),
                WatchAction::Nothing
            );
            assert_eq!(
                watched.next_action(ThreadStatus::Running(now), false, asked, &bounds),
                WatchAction::Ask
            );
            assert_eq!(watched.interval, FIRST_CHECK);
            now = asked;
            watched = watched.answered(2, now, &bounds);
        }
    }

    #[test]
    fn unresponsive_holder_is_overridden_at_the_bound() {
        let bounds = Bounds::default();
        for status in [|now| ThreadStatus::Running(now / 2), |_| ThreadStatus::Unknown] {
            let mut watched = HolderWatch::of(1, 0);
            let mut next_action = |now| watched.next_action(status(now), false, now, &bounds);
            assert_eq!(next_action(3 * MS), WatchAction::Nothing);
            assert_eq!(next_action(4 * MS), WatchAction::Ask);
            assert_eq!(next_action(5 * MS), WatchAction::Notify);
            assert_eq!(next_action(13 * MS), WatchAction::Nothing);
            assert_eq!(next_action(14 * MS), WatchAction::Override(Reason::Unresponsive));
            assert!(watched.interval <= 10 * MS / 4);
        }
        // The kernel gave the holder no CPU time to acknowledge the request.
        let mut watched = HolderWatch::of(1, 0);
        let mut next_action =
            |now| watched.next_action(ThreadStatus::Running(7), false, now, &bounds);
        assert_eq!(
            (next_action(4 * MS), next_action(5 * MS), next_action(14 * MS)),
            (WatchAction::Ask, WatchAction::Notify, WatchAction::Nothing)
        );
        assert_eq!(
            (next_action(103 * MS), next_action(104 * MS)),
            (WatchAction::Nothing, WatchAction::Override(Reason::Unresponsive))
        );
    }
}
