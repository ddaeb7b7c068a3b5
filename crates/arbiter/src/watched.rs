//! A holder of a core as a waiter sees it: what is to be done about it, by what the kernel says of
//! it and whether it answers.
//!
//! Pure functions on times: CLOCK_MONOTONIC, nanoseconds.

use std::time::Duration;

use crate::life::Life;
use crate::member::Reason;
use crate::slot::{Place, Word};

/// How long others are waited for.
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
pub(crate) const FIRST_LOOK: u64 = 500_000;
/// One that the kernel lets wait for a core is overridden after so many bounds.
const STARVED: u64 = 10;

/// The holder that it waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Watched {
    identity: u64,
    holder: Option<Place>,
    since: u64,
    /// When it was asked.
    asked: Option<u64>,
    /// Its CPU time when it was told, 0 where that is not known.
    told: Option<u64>,
    /// Its CPU time, if it slept at the last look.
    slept: Option<u64>,
    pub(crate) pause: u64,
    /// It has answered: it is asked after so many quanta, as a power of two.
    trust: u32,
}

/// Four quanta.
const MOST_TRUST: u32 = 2;

/// What is to be done about a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    Ask,
    Tell,
    Override(Reason),
}

impl Watched {
    pub(crate) fn of(identity: u64, now: u64) -> Watched {
        Watched { identity, since: now, pause: FIRST_LOOK, ..Watched::default() }
    }

    /// What stands in the slot by now.
    pub(crate) fn sees(&mut self, word: Word, now: u64, bounds: &Bounds) {
        if self.identity == word.identity() {
            return;
        }
        let is_same = self.holder == word.holder() && self.asked.is_some() && !word.is_given();
        let its = word.identity();
        *self = if is_same { self.answered(its, now, bounds) } else { Watched::of(its, now) };
        self.holder = word.holder();
    }

    /// The holder that was asked has answered, by another word.
    fn answered(&self, identity: u64, now: u64, bounds: &Bounds) -> Watched {
        let trust = (self.trust + 1).min(MOST_TRUST);
        Watched { trust, pause: nanoseconds(bounds.quantum) << trust, ..Watched::of(identity, now) }
    }

    /// It has the core for a moment only, as far as is known here; or it is trusted, and not asked
    /// yet. A look costs as much as a call through a gate, and a VP called by one that is about to
    /// leave the core waits for it for some microseconds.
    pub(crate) fn is_left_alone(&self, now: u64, bounds: &Bounds) -> bool {
        let quantum = nanoseconds(bounds.quantum) << self.trust;
        let has_had = now.saturating_sub(self.since);
        has_had < FIRST_LOOK || self.trust != 0 && self.asked.is_none() && has_had < quantum
    }

    /// After a look at the holder. `given`: it was given the core and has not come for it yet.
    pub(crate) fn judge(&mut self, life: Life, given: bool, now: u64, bounds: &Bounds) -> Verdict {
        let (quantum, bound) = (nanoseconds(bounds.quantum), nanoseconds(bounds.watchdog));
        let waited = now.saturating_sub(self.since);
        self.pause = (self.pause * 2).min((bound / 4).max(FIRST_LOOK));
        let used = match life {
            Life::Gone => return Verdict::Override(Reason::Dead),
            Life::Stopped => return Verdict::Override(Reason::Stopped),
            // One that was given the core sleeps until the giver has called it.
            Life::Asleep(used) if self.slept == Some(used) && (!given || waited >= bound) => {
                return Verdict::Override(Reason::Asleep);
            }
            Life::Asleep(used) => {
                self.slept = Some(used);
                used
            }
            Life::Runs(used) => {
                self.slept = None;
                used
            }
            Life::Unknown => {
                self.slept = None;
                u64::MAX
            }
        };
        let Some(asked) = self.asked else {
            if waited < quantum << self.trust {
                return Verdict::Nothing;
            }
            self.asked = Some(now);
            self.pause = FIRST_LOOK;
            return Verdict::Ask;
        };
        let waited = now.saturating_sub(asked);
        // A thread that was ready all the time since it was told, and got no core from the kernel,
        // could not answer, and is given more time. What it ran before that says nothing: it may
        // have passed no step.
        let could_answer = self.told.is_some_and(|then| used.saturating_sub(then) >= bound / 8)
            || waited >= bound.saturating_mul(STARVED);
        if waited >= bound && could_answer {
            return Verdict::Override(Reason::Silent);
        }
        if self.told.is_none() {
            self.told = Some(if used == u64::MAX { 0 } else { used });
            return Verdict::Tell;
        }
        Verdict::Nothing
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_holder_is_judged_by_what_it_does() {
        let bounds = Bounds::default();
        let mut watched = Watched::of(1, 0);
        let mut judge = |life, now| watched.judge(life, false, now, &bounds);
        assert_eq!(judge(Life::Stopped, 1), Verdict::Override(Reason::Stopped));
        assert_eq!(judge(Life::Gone, 1), Verdict::Override(Reason::Dead));
        // Asleep from one look to the next, and not in between.
        assert_eq!(judge(Life::Asleep(5), 1), Verdict::Nothing);
        assert_eq!(judge(Life::Asleep(6), 2), Verdict::Nothing);
        assert_eq!(judge(Life::Runs(6), 3), Verdict::Nothing);
        assert_eq!(judge(Life::Asleep(6), 4), Verdict::Nothing);
        assert_eq!(judge(Life::Asleep(6), 5), Verdict::Override(Reason::Asleep));
    }

    #[test]
    fn one_that_is_on_its_way_has_time_until_the_bound() {
        let mut watched = Watched::of(1, 0);
        let mut judge = |now| watched.judge(Life::Asleep(5), true, now, &Bounds::default());
        assert_eq!(judge(MS), Verdict::Nothing);
        assert_eq!(judge(2 * MS), Verdict::Nothing);
        assert_eq!(judge(10 * MS), Verdict::Override(Reason::Asleep));
    }

    #[test]
    fn answering_holder_is_left_alone_for_at_most_four_quanta() {
        let bounds = Bounds::default();
        let (mut watched, mut now) = (Watched::of(1, 0), 0);
        for quanta in [1, 2, 4, 4] {
            assert!(watched.is_left_alone(now, &bounds));
            assert_eq!(watched.is_left_alone(now + FIRST_LOOK, &bounds), quanta > 1);
            let asked = now + quanta * 4 * MS;
            assert!(!watched.is_left_alone(asked, &bounds));
            assert_eq!(watched.judge(Life::Runs(now), false, asked - 1, &bounds), Verdict::Nothing);
            assert_eq!(watched.judge(Life::Runs(now), false, asked, &bounds), Verdict::Ask);
            assert_eq!(watched.pause, FIRST_LOOK);
            now = asked;
            watched = watched.answered(2, now, &bounds);
        }
    }

    #[test]
    fn silent_holder_is_overridden_at_the_bound() {
        let bounds = Bounds::default();
        for life in [|now| Life::Runs(now / 2), |_| Life::Unknown] {
            let mut watched = Watched::of(1, 0);
            let mut judge = |now| watched.judge(life(now), false, now, &bounds);
            assert_eq!(judge(3 * MS), Verdict::Nothing);
            assert_eq!(judge(4 * MS), Verdict::Ask);
            assert_eq!(judge(5 * MS), Verdict::Tell);
            assert_eq!(judge(13 * MS), Verdict::Nothing);
            assert_eq!(judge(14 * MS), Verdict::Override(Reason::Silent));
            assert!(watched.pause <= 10 * MS / 4);
        }
        // The kernel gave it no core to answer on.
        let mut watched = Watched::of(1, 0);
        let mut judge = |now| watched.judge(Life::Runs(7), false, now, &bounds);
        assert_eq!(
            (judge(4 * MS), judge(5 * MS), judge(14 * MS)),
            (Verdict::Ask, Verdict::Tell, Verdict::Nothing)
        );
        assert_eq!(
            (judge(103 * MS), judge(104 * MS)),
            (Verdict::Nothing, Verdict::Override(Reason::Silent))
        );
    }
}
