//! Timekeeper: a pool thread that periodically scans the VPs and preempts microprocesses whose
//! quantum has expired, or that do not notice new work.
//!
//! There is no timer per kernel thread, and nobody is interrupted unless somebody waits: one that
//! was interrupted and found itself alone says so, and is left in peace until something comes
//! ([`Vp::is_alone_no_more`]). What else is read here of a virtual processor is published by its
//! carrier with plain stores, and may be out of date: an interruption too many does no harm.
//!
//! One that has run for long without a switch is a *hog*. What would wake others on its virtual
//! processor (descriptors, timers) is then watched from here, so that they wait no longer than they
//! would beside one that switches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_events::preempt::Means;
use kumihimo_events::sched::{Event, Tick};

use crate::board;
use crate::instance::Instance;
use crate::vp::{BOOK_AT_LATEST, Vp};

/// Looks at the time where no quantum says otherwise.
const LONGEST: u64 = 10_000_000;
const SHORTEST: u64 = 50_000;
/// A bell that was not heard (the kernel thread could not be interrupted anywhere) is rung again
/// after this long.
const REMIND_AFTER: u64 = 3_000_000;
/// So much later than announced, somebody else looks.
const OVERDUE: u64 = 10_000_000;
/// No time on the instance's clock.
const NEVER: u64 = u64::MAX;

/// What the keeper of the time knows and tells of a virtual processor.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Number of switches at the last scan, and the begin of the turn that was under way then.
    /// Written by the timekeeper.
    switches: AtomicU64,
    since: AtomicU64,
    /// When a turn was ended, until the microprocess gives way or is seen to go on; else [`NEVER`].
    /// Written by the timekeeper.
    ended: AtomicU64,
    /// When its bell rang last.
    rung: AtomicU64,
    /// The turn that began at that number of switches is over. Taken by the carrier.
    over: AtomicU64,
    /// At that number of switches nothing else was queued, nor came since. By the carrier.
    alone: AtomicU64,
    /// At that number of switches one began, or went on that had been preempted: see
    /// [`Vp::may_be_long`]. By the carrier.
    went_on: AtomicU64,
    /// How long the running one may run, where the policy decides that for each anew. By the
    /// carrier.
    pub(crate) quantum: AtomicU64,
    /// How often Preempted or Changed was acted upon. By its carrier.
    pub(crate) answers: AtomicU64,
    /// Number of switches at which its descriptors were last given to be watched: of interest as
    /// long as there was no further one.
    watched: AtomicU64,
    /// When its first timer is due; none: [`NEVER`]. By its carrier.
    timer: AtomicU64,
}

impl Turn {
    pub(crate) fn new() -> Turn {
        Turn {
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
    fn notice(&self, switches: u64, now: u64) -> bool {
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
    fn end(&self, now: u64) {
        self.over.store(self.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ended.store(now, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// The microprocess with the turn is seen to run on, whether the turn was ended or not.
    fn goes_on(&self) {
        self.ended.store(NEVER, Ordering::Relaxed);
    }

    /// What is `now` left of the turn, where it lasts for a `quantum`.
    fn left(&self, quantum: u64, now: u64) -> u64 {
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

impl Instance {
    /// [`UserScheduler::tick`](kumihimo_events::sched::UserScheduler::tick).
    pub(crate) fn look_at_turns(&self) -> Tick {
        if self.stopped() {
            return Tick::Rest(None);
        }
        if self.all_idle() {
            return self.look_at_idleness();
        }
        crate::intake::flush(kumihimo_arbiter::row::Caller::Anywhere);
        self.call_back_if_others_differ();
        let now = self.now();
        let next = self.vps.iter().map(|vp| self.look_at_turn(vp, now)).min().unwrap_or(LONGEST);
        self.again_in(next.clamp(SHORTEST, LONGEST), now)
    }

    fn again_in(&self, next: u64, now: u64) -> Tick {
        self.tick_at.store(now + next, Ordering::Relaxed);
        Tick::Again(Duration::from_nanos(next))
    }

    /// A VP that has run since the last scan is likely to run again soon, and would have to call
    /// the timekeeper back each time (for each request of a server with one client). So it rests
    /// only after a while of silence.
    fn look_at_idleness(&self) -> Tick {
        let switches = self.vps.iter().map(|vp| vp.counters.switches.load(Ordering::Relaxed));
        let switches = switches.fold(0, u64::wrapping_add);
        let has_sticky = self.call_back_if_others_differ();
        if self.switches_seen.swap(switches, Ordering::Relaxed) != switches || has_sticky {
            return self.again_in(LONGEST, self.now());
        }
        Tick::Rest(self.stir())
    }

    /// Nobody runs, but others may write on the board.
    fn stir(&self) -> Option<Duration> {
        let look = if crate::intake::is_used() { crate::deadlock::next_look(self) } else { None };
        if board::others() == 0 {
            return look;
        }
        let now = self.now();
        if now.saturating_sub(self.stirred_at.load(Ordering::Relaxed))
            >= board::STIR.as_nanos() as u64
        {
            self.stirred_at.store(now, Ordering::Relaxed);
            board::stir();
        }
        Some(look.unwrap_or(board::STIR).min(board::STIR))
    }

    /// Called by a thread that waits for its turn: scans the turns in place of the timekeeper, if
    /// that is long overdue. The timekeeper may be the one spare, being born, and wait at the
    /// dynamic linker's lock, which was just given to the caller. Async-signal-safe.
    pub(crate) fn keep_time_if_nobody_does(&self) {
        let (now, at) = (self.now(), self.tick_at.load(Ordering::Relaxed));
        let is_overdue =
            self.kernel.preemption() != Means::Off && now.saturating_sub(at) >= OVERDUE;
        if is_overdue
            && self.tick_at.compare_exchange(at, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let _ = self.look_at_turns();
        }
    }

    /// Says after how many nanoseconds to look at `vp` again.
    fn look_at_turn(&self, vp: &Vp, now: u64) -> u64 {
        if vp.idle.cell.is_sleeping() {
            return LONGEST;
        }
        let index = vp.index as u32;
        let level =
            self.kernel.carrier(index).map_or(0, |slot| slot.priority.load(Ordering::Relaxed));
        let quantum = self.placer.quantum_of_ns(level);
        let quantum = quantum.unwrap_or_else(|| vp.tick.quantum.load(Ordering::Relaxed));
        let pace = (quantum / 2)
            .clamp(SHORTEST, if board::has_rules() { BOOK_AT_LATEST } else { LONGEST });
        let turn = &vp.tick;
        let switches = vp.counters.switches.load(Ordering::Relaxed);
        let due = turn.timer.load(Ordering::Relaxed).saturating_sub(now);
        if turn.notice(switches, now) {
            // A VP that switches looks at its timers by itself.
            let due = if turn.went_on.load(Ordering::Relaxed) == switches { due } else { NEVER };
            return pace.min(turn.left(quantum, now).max(SHORTEST)).min(due);
        }
        if self.kernel.is_raised(index) {
            // Rung for already; once more if that was of no use.
            if now.saturating_sub(turn.rung.load(Ordering::Relaxed)) >= REMIND_AFTER {
                turn.goes_on();
                turn.rung.store(now, Ordering::Relaxed);
                self.kernel.ring_again(index);
            }
            return pace;
        }
        turn.goes_on();
        let left = turn.left(quantum, now);
        let is_alone = turn.alone.load(Ordering::Relaxed) == switches
            && !self.queues.has_visible_work(vp.index);
        let is_over = left == 0 && !is_alone;
        if is_over {
            turn.end(now);
        }
        if is_over
            || due == 0
            || self.queues.has_injected(vp.index)
            || vp.row.head.has_posts()
            || vp.is_to_step()
            || vp.has_to_book(level, now)
        {
            turn.rung.store(now, Ordering::Relaxed);
            self.kernel.raise(index, Event::Preempted);
        }
        vp.watch_descriptors();
        [pace, left, due].into_iter().filter(|t| *t != 0).min().unwrap_or(pace)
    }

    /// Something is ready that VP `index` was watched for. If it has switched since, it finds that
    /// by itself.
    pub(crate) fn is_ready(&self, index: u32) {
        let vp = &self.vps[index as usize];
        let switches = vp.counters.switches.load(Ordering::Relaxed);
        if vp
            .tick
            .watched
            .compare_exchange(switches, u64::MAX, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.kernel.raise(index, Event::Preempted);
        }
    }
}

impl Vp {
    /// Whether the turn of the running microprocess is over, as far as the timekeeper knows. Owner
    /// only.
    pub(crate) fn turn_is_over(&self) -> bool {
        self.tick.over.swap(u64::MAX, Ordering::Relaxed)
            == self.counters.switches.load(Ordering::Relaxed)
    }

    /// One that was preempted runs on: it probably does not switch soon. Owner only.
    pub(crate) fn goes_on(&self) {
        if self.queue().is_empty() {
            self.alone.set(true);
            self.tick
                .alone
                .store(self.counters.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.watch_descriptors();
        self.may_be_long();
    }

    /// Whether a microprocess that begins, or goes on after it was preempted, makes a switch soon
    /// is not known: the timekeeper is to look when a timer is due. Owner only.
    #[inline]
    pub(crate) fn may_be_long(&self) {
        let timer = self.tick.timer.load(Ordering::Relaxed);
        if timer == NEVER {
            return;
        }
        self.tick.went_on.store(self.counters.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        let instance = self.instance();
        if timer < instance.tick_at.load(Ordering::Relaxed) {
            // Once: until it looks the next one need not ask.
            instance.tick_at.store(timer, Ordering::Relaxed);
            instance.kernel.wake_timekeeper();
        }
    }

    /// Something is queued here: the running microprocess is not alone any more, if it was. Owner
    /// only.
    #[cold]
    pub(crate) fn is_alone_no_more(&self) {
        self.alone.set(false);
        self.tick.alone.store(u64::MAX, Ordering::Relaxed);
    }

    /// What arrives for others interrupts the running one, unless there is a switch before that.
    /// Where all have one level it can wait until the quantum is over, but for one that is alone:
    /// its quantum has no end.
    fn watch_descriptors(&self) {
        let switches = self.counters.switches.load(Ordering::Relaxed);
        if !self.has_levels() && self.tick.alone.load(Ordering::Relaxed) != switches {
            return;
        }
        if self.poller.is_used() && self.tick.watched.swap(switches, Ordering::Relaxed) != switches
        {
            // A failure (no memory) leaves it to the end of the quantum.
            let _ = self.instance().kernel.watch_once(self.index as u32, self.poller.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTUM: u64 = 1_000;

    /// One whose turn began at 0, with that number of switches.
    fn begun(switches: u64) -> Turn {
        let turn = Turn::new();
        assert!(turn.notice(switches, 0) && !turn.notice(switches, 400));
        assert_eq!(
            (turn.left(QUANTUM, 0), turn.left(QUANTUM, 400), turn.left(QUANTUM, 1_100)),
            (1_000, 600, 0)
        );
        turn
    }

    #[test]
    fn next_turn_is_whole_from_the_end_of_the_last() {
        for switches in [0, 7, u64::MAX - 1] {
            let turn = begun(switches);
            turn.end(1_100);
            assert_eq!(turn.over.load(Ordering::Relaxed), switches);
            // However late it is seen.
            assert!(turn.notice(switches.wrapping_add(1), 1_500));
            assert_eq!((turn.left(QUANTUM, 1_500), turn.left(QUANTUM, 2_100)), (600, 0));
        }
    }

    #[test]
    fn a_switch_that_nobody_asked_for_begins_when_it_is_seen() {
        let turn = begun(7);
        assert!(turn.notice(8, 500));
        assert_eq!(turn.left(QUANTUM, 500), 1_000);
        // Nor is it known when the last of several was, though the first one was asked for ...
        turn.end(1_500);
        assert!(turn.notice(10, 1_900));
        assert_eq!(turn.left(QUANTUM, 1_900), 1_000);
        // ... or the one before.
        turn.end(2_900);
        assert!(turn.notice(11, 3_000) && turn.notice(12, 3_400));
        assert_eq!(turn.left(QUANTUM, 3_400), 1_000);
    }

    #[test]
    fn one_that_goes_on_has_a_whole_turn_and_leaves_nothing_of_it() {
        let turn = begun(7);
        turn.end(1_000);
        assert!(!turn.notice(7, 1_200));
        turn.goes_on();
        assert_eq!(turn.left(QUANTUM, 1_200), 800);
        assert!(turn.notice(8, 1_900));
        assert_eq!(turn.left(QUANTUM, 1_900), 1_000);
    }
}
