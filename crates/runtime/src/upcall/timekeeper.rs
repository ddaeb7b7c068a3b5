//! Timekeeper: a pool thread that periodically scans the VPs and preempts microprocesses whose
//! quantum has expired, or that do not notice new work.
//!
//! There is no timer per kernel thread, and a microprocess is interrupted only if others wait.
//! After an interrupted microprocess finds the queue empty, the timekeeper leaves it alone until
//! something is queued ([`Vp::clear_alone`]). Everything else that the timekeeper reads about a VP
//! was published by its carrier with plain stores and may be out of date. A superfluous
//! interruption does no harm.
//!
//! A microprocess that has run for long without a switch is a *hog*. The VP of a hog does not check
//! its descriptors and timers, so the timekeeper watches them. Microprocesses that wait for them
//! then wait no longer than on a VP that switches.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kumihimo_arch::kernel_attributes;
use kumihimo_events::preempt::Means;
use kumihimo_events::sched::{Event, Tick};

use crate::priority::core_claim::BOOK_AT_LATEST;
use crate::priority::lost_time::Reading;
use crate::priority::turn_clock::NEVER;
use crate::process::board;
use crate::scheduler::instance::Instance;
use crate::scheduler::vp::Vp;

/// Longest interval between two scans where no quantum requires a shorter one, in nanoseconds.
const LONGEST: u64 = 10_000_000;
/// Shortest interval between two scans, in nanoseconds.
const SHORTEST: u64 = 50_000;
/// A VP whose microprocess is alone is scanned less often if half its quantum is shorter than this,
/// in nanoseconds.
const ALONE: u64 = 2_000_000;
/// Time after which a doorbell without effect (the kernel thread could not be interrupted anywhere)
/// rings again, in nanoseconds.
const REMIND_AFTER: u64 = 3_000_000;
/// Delay of a scan after which another thread scans instead, in nanoseconds.
const OVERDUE: u64 = 10_000_000;

impl Instance {
    /// [`UserScheduler::tick`](kumihimo_events::sched::UserScheduler::tick).
    pub(crate) fn look_at_turns(&self) -> Tick {
        if self.stopped() {
            return Tick::Rest(None);
        }
        if self.all_idle() {
            return self.look_at_idleness();
        }
        crate::idle::remote_wake::flush(kumihimo_arbiter::row::Caller::Anywhere);
        self.recall_sticky_if_levels_differ();
        let now = self.now();
        let next = self.vps.iter().map(|vp| self.look_at_turn(vp, now)).min().unwrap_or(LONGEST);
        let next = next.min(self.sample_cpu(now));
        self.again_in(next.clamp(SHORTEST, LONGEST), now)
    }

    fn again_in(&self, next: u64, now: u64) -> Tick {
        self.tick_at.store(now + next, Ordering::Relaxed);
        Tick::Again(Duration::from_nanos(next))
    }

    /// Handles a tick at which all VPs are idle.
    ///
    /// A VP that has run since the last scan is likely to run again soon, for example for the next
    /// request of a server's only client. It would have to wake the timekeeper each time. So the
    /// timekeeper rests only after an interval without any switch.
    fn look_at_idleness(&self) -> Tick {
        let switches = self.vps.iter().map(|vp| vp.counters.switches.load(Ordering::Relaxed));
        let switches = switches.fold(0, u64::wrapping_add);
        let has_sticky = self.recall_sticky_if_levels_differ();
        if self.switches_seen.swap(switches, Ordering::Relaxed) != switches || has_sticky {
            return self.again_in(LONGEST, self.now());
        }
        Tick::Rest(self.rescan())
    }

    /// Rescans the board, because other address spaces may have written to it while no VP runs.
    /// Returns when to do so again.
    fn rescan(&self) -> Option<Duration> {
        let look =
            if crate::idle::remote_wake::is_used() { self.next_deadlock_look() } else { None };
        if board::others() == 0 {
            return look;
        }
        let now = self.now();
        if now.saturating_sub(self.rescanned_at.load(Ordering::Relaxed))
            >= board::RESCAN_INTERVAL.as_nanos() as u64
        {
            self.rescanned_at.store(now, Ordering::Relaxed);
            board::rescan();
        }
        Some(look.unwrap_or(board::RESCAN_INTERVAL).min(board::RESCAN_INTERVAL))
    }

    /// Scans the VPs in place of the timekeeper if its scan is long overdue. Called by a thread
    /// that waits for its turn. The timekeeper may be the only spare and still be starting; it may
    /// then wait for the dynamic linker's lock, which the caller was just given. Async-signal-safe.
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

    /// Scans one VP. Returns the number of nanoseconds until the next scan of it.
    fn look_at_turn(&self, vp: &Vp, now: u64) -> u64 {
        if vp.idle.cell.is_sleeping() || vp.idle.is_parked() {
            return LONGEST;
        }
        vp.set_coarse(now);
        let index = vp.index as u32;
        let carrier = self.kernel.carrier(index);
        let level = carrier.map_or(0, |slot| slot.priority.load(Ordering::Relaxed));
        let quantum = self.placer.quantum_of_ns(level);
        let quantum = quantum.unwrap_or_else(|| vp.turn_clock.quantum.load(Ordering::Relaxed));
        let pace = (quantum / 2)
            .clamp(SHORTEST, if board::has_rules() { BOOK_AT_LATEST } else { LONGEST });
        let turn = &vp.turn_clock;
        let switches = vp.counters.switches.load(Ordering::Relaxed);
        let due = turn.timer.load(Ordering::Relaxed).saturating_sub(now);
        let is_off_core = carrier.is_some_and(|slot| {
            let thread = slot.tid.load(Ordering::Relaxed);
            // The result matters only if the VP has not switched since, and then it has not idled.
            let reading = |on_core| Reading { thread, now, idle: 0, on_core };
            kernel_attributes::cpu_time_of(thread).is_some_and(|t| turn.exclude_lost(reading(t)))
        });
        let is_alone = vp.runs_alone() && !self.queues.has_visible_work(vp.index);
        // What becomes runnable interrupts one that is alone ([`Instance::put`]), and so do timers
        // and descriptors of its VP. Links to other address spaces do not, and those that want the
        // core may wait until the next look.
        let is_left =
            is_off_core || is_alone && pace < ALONE && !crate::idle::remote_wake::is_used();
        // Where levels differ, each look may find somebody of a higher one.
        let slow_pace =
            if self.has_levels() { pace } else { turn.slow_down(switches, is_left, pace) };
        if turn.notice(switches, now) {
            // A VP that switches fires its own timers.
            let due = if turn.went_on.load(Ordering::Relaxed) == switches { due } else { NEVER };
            let left = turn.left(quantum, now).max(SHORTEST);
            let next = if slow_pace > pace { slow_pace } else { pace.min(left) };
            return next.min(due);
        }
        let pace = if is_left { slow_pace } else { pace };
        if self.kernel.is_raised(index) {
            // The doorbell has rung already; it rings once more if that had no effect.
            if now.saturating_sub(turn.rung.load(Ordering::Relaxed)) >= REMIND_AFTER {
                turn.goes_on();
                turn.rung.store(now, Ordering::Relaxed);
                self.kernel.ring_again(index);
            }
            return pace;
        }
        turn.goes_on();
        let left = turn.left(quantum, now);
        let is_over = left == 0 && !is_alone;
        if is_over {
            turn.end(now);
        }
        if is_over
            || due == 0
            || self.queues.has_injected(vp.index)
            || vp.row.head.has_posts()
            || vp.must_step()
            || vp.is_retired()
            || vp.has_to_book(level, now)
        {
            turn.rung.store(now, Ordering::Relaxed);
            self.kernel.raise(index, Event::Preempted);
        }
        vp.watch_descriptors();
        let left = if is_left { left.max(pace) } else { left };
        [pace, left, due].into_iter().filter(|t| *t != 0).min().unwrap_or(pace)
    }

    /// Raises *Preempted* on VP `index` because a watched descriptor is ready. A VP that has
    /// switched since it was watched polls by itself and is left alone.
    pub(crate) fn is_ready(&self, index: u32) {
        let vp = &self.vps[index as usize];
        let switches = vp.counters.switches.load(Ordering::Relaxed);
        let watched = &vp.turn_clock.watched;
        // It may be about to switch, to one that gives way.
        for at in [switches, switches.wrapping_add(1)] {
            let exchanged =
                watched.compare_exchange(at, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
            if exchanged.is_ok() {
                return self.kernel.raise(index, Event::Preempted);
            }
        }
    }
}

impl Vp {
    /// Whether the timekeeper has ended the turn of the running microprocess. Owner only.
    pub(crate) fn turn_is_over(&self) -> bool {
        self.turn_clock.over.swap(u64::MAX, Ordering::Relaxed)
            == self.counters.switches.load(Ordering::Relaxed)
    }

    /// Records that a preempted microprocess runs on, and thus probably does not switch soon. Owner
    /// only.
    pub(crate) fn goes_on(&self) {
        if self.queue().is_empty() {
            self.alone.set(true);
            self.turn_clock
                .alone
                .store(self.counters.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.watch_descriptors();
        self.note_may_run_long();
    }

    /// Whether the running microprocess had used a quantum and was alone when the VP last looked,
    /// so that the timekeeper scans seldom. A hint. Callable from any thread.
    pub(crate) fn runs_alone(&self) -> bool {
        let alone = self.turn_clock.alone.load(Ordering::Relaxed);
        // The number of switches is in a cache line that its VP writes at each switch.
        alone != u64::MAX && alone == self.counters.switches.load(Ordering::Relaxed)
    }

    /// Records that the running microprocess, which has just begun or was just preempted, may run
    /// for long without a switch. Wakes the timekeeper when its next scan would come after the VP's
    /// first timer. Owner only.
    #[inline]
    pub(crate) fn note_may_run_long(&self) {
        let timer = self.turn_clock.timer.load(Ordering::Relaxed);
        if timer == NEVER {
            return;
        }
        self.turn_clock
            .went_on
            .store(self.counters.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        let instance = self.instance();
        if timer < instance.tick_at.load(Ordering::Relaxed) {
            // The next caller need not wake the timekeeper again before its scan.
            instance.tick_at.store(timer, Ordering::Relaxed);
            instance.kernel.wake_timekeeper();
        }
    }

    /// Records that a microprocess was queued beside the running one. Owner only.
    #[cold]
    pub(crate) fn clear_alone(&self) {
        self.alone.set(false);
        self.turn_clock.alone.store(u64::MAX, Ordering::Relaxed);
    }

    /// Has ready descriptors interrupt the running microprocess, unless it switches before that.
    /// Where all microprocesses have one level, the descriptors can wait until the quantum is over,
    /// unless the running microprocess is alone, so that its quantum has no end, or gives way.
    fn watch_descriptors(&self) {
        let switches = self.counters.switches.load(Ordering::Relaxed);
        if !self.instance().has_levels()
            && !self.runs_alone()
            && !self.turn_clock.gives_way.load(Ordering::Relaxed)
        {
            return;
        }
        if self.poller.is_used()
            && self.turn_clock.watched.swap(switches, Ordering::Relaxed) != switches
        {
            // On failure (no memory) the descriptors wait until the end of the quantum.
            let _ = self.instance().kernel.watch_once(self.index as u32, self.poller.as_fd());
        }
    }
}
