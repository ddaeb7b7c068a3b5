//! Watch on the holder of a core: what its waiter does next, by the state of its kernel thread and
//! by whether it answers.
//!
//! Pure functions on times: CLOCK_MONOTONIC, nanoseconds.

use std::time::Duration;

use crate::board::overrides::Reason;
use crate::clock::nanoseconds;
use crate::holder::thread_status::ThreadStatus;
use crate::slot::{VpId, Word};

/// Time limits for holders of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// After so long another one of the same level has its turn.
    pub quantum: Duration,
    /// Within so long a holder must answer, or leave.
    pub watchdog: Duration,
}

impl Default for Bounds {
    /// 4 ms and 10 ms.
    fn default() -> Bounds {
        Bounds { quantum: Duration::from_millis(4), watchdog: Duration::from_millis(10) }
    }
}

/// The first look after the wait began; each later one after twice the time.
pub(crate) const FIRST_CHECK: u64 = 500_000;
/// One that the kernel lets wait for a core is overridden after so many bounds.
const STARVED: u64 = 10;

/// The holder that a VP waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct HolderWatch {
    identity: u64,
    holder: Option<VpId>,
    since: u64,
    /// When the holder was asked.
    asked: Option<u64>,
    /// Its CPU time when it was notified, 0 where that is not known.
    notified: Option<u64>,
    /// Its CPU time, if it slept at the last look.
    last_sleep: Option<u64>,
    pub(crate) interval: u64,
    /// It has answered: it is asked after so many quanta, as a power of two.
    backoff: u32,
}

/// Four quanta.
const MAX_BACKOFF: u32 = 2;

/// What a waiter does about a holder.
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

    /// What stands in the slot by now.
    pub(crate) fn observe(&mut self, word: Word, now: u64, bounds: &Bounds) {
        if self.identity == word.identity() {
            return;
        }
        let is_same = self.holder == word.holder() && self.asked.is_some() && !word.is_given();
        let its = word.identity();
        *self = if is_same { self.answered(its, now, bounds) } else { HolderWatch::of(its, now) };
        self.holder = word.holder();
    }

    /// The holder that was asked has answered, by another word.
    fn answered(&self, identity: u64, now: u64, bounds: &Bounds) -> HolderWatch {
        let backoff = (self.backoff + 1).min(MAX_BACKOFF);
        HolderWatch {
            backoff,
            interval: nanoseconds(bounds.quantum) << backoff,
            ..HolderWatch::of(identity, now)
        }
    }

    /// It has the core for a moment only, as far as is known here; or it is trusted, and not asked
    /// yet. A look costs as much as a call through a gate, and a VP called by one that is about to
    /// leave the core waits for it for some microseconds.
    pub(crate) fn is_within_grace(&self, now: u64, bounds: &Bounds) -> bool {
        let quantum = nanoseconds(bounds.quantum) << self.backoff;
        let has_had = now.saturating_sub(self.since);
        has_had < FIRST_CHECK || self.backoff != 0 && self.asked.is_none() && has_had < quantum
    }

    /// After a look at the holder. `given`: it was given the core and has not come for it yet.
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
            // One that was given the core sleeps until the giver has called it.
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
        // A thread that was ready all the time since it was told, and got no core from the kernel,
        // could not answer, and is given more time. What it ran before that says nothing: it may
        // have passed no step.
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
        // Asleep from one look to the next, and not in between.
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
    fn answering_holder_is_left_alone_for_at_most_four_quanta() {
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
    fn silent_holder_is_overridden_at_the_bound() {
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
        // The kernel gave it no core to answer on.
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
