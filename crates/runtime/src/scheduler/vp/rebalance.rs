//! Priority order, the VP's part: publishes the running level, and hands queued microprocesses
//! over. [`crate::priority::priority_order`] defines the protocol.
//!
//! A VP rebalances at each switch, at each clock check, when a microprocess becomes runnable
//! without running at once, and when another VP requests it. While all microprocesses of the
//! process have the same level, priority order cannot be violated. Each VP then caches that level,
//! and the whole check is one comparison with it.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use kumihimo_events::sched::Event;
use kumihimo_policy::Why;
use kumihimo_queue::{Origin, Place};

use super::Vp;
use crate::kernel_thread::gs_record::KernelThread;
use crate::microprocess::record::Mp;
use crate::priority::common_level::{LEVELS, NO_LEVEL};
use crate::priority::priority_order::{
    self, NONE, OwnQueue, PublishedLevels, PublishedTable, Rank, rank,
};
use crate::process::board;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;

impl Instance {
    /// Records that a microprocess of `level` exists. Returns whether levels differ.
    fn note_level(&self, level: u8) -> bool {
        if self.own_common_level.diverges_at(level) {
            self.recall_sticky();
        }
        let one = &self.common_level.0;
        match one.load(Ordering::Relaxed) {
            LEVELS => return true,
            same if same == level => return false,
            _ => {}
        }
        match one.compare_exchange(NO_LEVEL, level, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                for vp in &self.vps {
                    // Fails for a VP that already records that levels differ.
                    let own = &vp.common_level.0;
                    let _ =
                        own.compare_exchange(NO_LEVEL, level, Ordering::Relaxed, Ordering::Relaxed);
                }
                false
            }
            Err(now) if now == level => false,
            Err(_) => {
                if one.swap(LEVELS, Ordering::Relaxed) != LEVELS {
                    self.levels_differ();
                }
                true
            }
        }
    }

    /// Records on all VPs that levels differ from now on. Each VP then takes a scheduling step, in
    /// which it publishes its levels and examines the others'.
    #[cold]
    fn levels_differ(&self) {
        for (i, vp) in self.vps.iter().enumerate() {
            vp.common_level.0.store(LEVELS, Ordering::Relaxed);
            // A parked VP has published that nothing runs there.
            if !vp.idle.is_parked() {
                self.force_step(i);
            }
        }
    }

    /// Whether priority levels matter now: microprocesses of different levels have existed here, or
    /// another address space runs a different level, or CPU time is accounted.
    pub(crate) fn has_levels(&self) -> bool {
        // SeqCst: see `sticky::begin`.
        match self.own_common_level.0.load(Ordering::SeqCst) {
            LEVELS => true,
            NO_LEVEL => board::has_rules(),
            _ if board::others() == 0 => board::has_rules(),
            own => board::has_rules() || board::is_another_level_there(own),
        }
    }

    /// As [`has_levels`](Instance::has_levels), after recording the level of `mp`. Called by the
    /// holder of `mp`.
    pub(crate) fn levels_differ_for(&self, mp: &Mp) -> bool {
        if let Some(level) = self.placer.static_level(mp) {
            self.note_level(level);
        }
        self.has_levels()
    }

    /// Returns the level of `mp`, which is about to be sent to a VP, if levels differ. Holder of
    /// `mp` only.
    #[inline]
    pub(crate) fn level_if_they_differ(&self, mp: &Mp) -> Option<u8> {
        if self.common_level.0.load(Ordering::Relaxed) == LEVELS {
            return Some(self.placer.level(mp, Why::Woken, || self.now()));
        }
        // A non-static policy is asked only once, by the receiving VP, which then detects a
        // different level.
        self.placer.static_level(mp).filter(|level| self.note_level(*level))
    }

    /// As [`inject`](Instance::inject), for differing levels.
    #[cold]
    pub(crate) fn send(&self, to: usize, mp: &'static Mp, level: u8) {
        // Once injected, the microprocess may run and end, and its record may be reused.
        let id = mp.id();
        let begin = |to| trace_hooks::sent(&self.trace, to, id, level);
        let put = |to| {
            self.put(to, mp);
            trace_hooks::put(&self.trace, to, id);
        };
        priority_order::send(self, to, rank(level), begin, put, |vp| self.force_step(vp));
    }

    /// Makes the VPs rebalance from now on, because other address spaces compete for the cores. A
    /// VP requests its core when it rebalances.
    pub(crate) fn note_other_spaces(&self) {
        if self.common_level.0.load(Ordering::Relaxed) != LEVELS
            && self.common_level.0.swap(LEVELS, Ordering::Relaxed) != LEVELS
        {
            self.levels_differ();
        }
    }

    pub(in crate::scheduler) fn force_step(&self, vp: usize) {
        self.kernel.raise(vp as u32, Event::Preempted);
        self.vps[vp].idle.wake();
    }
}

impl PublishedTable for Instance {
    fn len(&self) -> usize {
        self.vps.len()
    }
    fn published(&self, vp: usize) -> &PublishedLevels {
        &self.vps[vp].published
    }
    fn is_closed(&self, vp: usize) -> bool {
        self.queues.is_closed(vp)
    }
}

impl OwnQueue for &Vp {
    fn is_sent(&mut self) -> bool {
        !self.queue.injector_is_empty()
    }

    fn waits(&mut self) -> Rank {
        self.queue.waiting().map_or(NONE, rank)
    }

    fn hand(&mut self, to: usize, at_least: Rank) -> bool {
        let Some(item) = self.queue.hand((at_least - 1) as u8) else { return false };
        // SAFETY: queued items are records, and `hand` gave this one to the caller exclusively.
        let mp = unsafe { &*item.as_ptr() };
        mp.handed.set(true);
        self.instance().send(to, mp, mp.level.get());
        true
    }

    fn pass_on(&mut self) {
        match self.queue.given() {
            Some((next, level)) if self.queue.waiting() == Some(level) => {
                self.instance().force_step(next)
            }
            _ => self.resched_if_outranked(),
        }
    }

    fn raise(&mut self, vp: usize) {
        self.instance().force_step(vp);
    }
}

impl Vp {
    /// Whether all microprocesses have had the same level so far.
    #[inline]
    pub(crate) fn has_common_level(&self) -> bool {
        self.common_level.0.load(Ordering::Relaxed) != LEVELS
    }

    /// Whether all microprocesses have had exactly this level so far: then priority order needs no
    /// action.
    #[inline(always)]
    pub(crate) fn is_common_level(&self, level: u8) -> bool {
        self.common_level.0.load(Ordering::Relaxed) == level
    }

    /// Publishes that `mp`, which runs next or runs on, is the running microprocess, and
    /// rebalances.
    #[cold]
    pub(in crate::scheduler) fn publish_running(&self, mp: &Mp) {
        let level = mp.level.get();
        if self.instance().note_level(level) {
            trace_hooks::begins_step(&self.trace);
            // The new level is set first. Injected microprocesses must be compared with `mp`, not
            // with the microprocess that is being left: no VP examines an already published level
            // again.
            self.level.set(level);
            // A switch to a new child or to a joiner has not called `look_around`.
            if !self.queue.injector_is_empty() {
                self.take_injected();
            }
            let step_taken = self.rebalance(rank(level));
            self.note_step(Some(mp), step_taken);
            self.ask_for_core(level);
            // On the kernel thread's own stack no microprocess runs yet, so `push` and
            // `resched_if_outranked` could not request the reschedule.
            if step_taken.0 > rank(level) && self.running().is_none() {
                self.resched_now();
            }
        }
    }

    /// Publishes the level of the running microprocess, which runs on.
    #[cold]
    pub(in crate::scheduler) fn publish_continuing(&self) {
        if let Some(mp) = self.running() {
            self.publish_running(mp);
        }
    }

    /// Publishes `next`, which runs here next without a
    /// [`switch`](crate::scheduler::carrier::Carrier::switch).
    pub(crate) fn publish_next(&self, next: &Mp) {
        if !self.is_common_level(next.level.get()) {
            self.publish_running(next);
        }
    }

    /// Publishes that nothing is runnable here.
    pub(crate) fn publish_idle(&self) {
        if self.is_common_level(LEVELS) {
            trace_hooks::begins_step(&self.trace);
            self.note_step(None, self.rebalance(NONE));
        }
    }

    /// Queues `mp`, whose level may differ from the common one, and rebalances if it does.
    #[cold]
    pub(in crate::scheduler) fn push_and_rebalance(
        &self,
        mp: &'static Mp,
        place: Place,
        origin: Origin,
    ) {
        self.push_without_rebalance(mp, place, origin);
        if self.instance().note_level(place.level) {
            self.rebalance_now();
        }
    }

    /// Rebalances while a microprocess runs, without a switch.
    pub(in crate::scheduler) fn rebalance_now(&self) {
        if self.is_common_level(LEVELS) && self.running().is_some() {
            self.rebalance(rank(self.level.get()));
        }
    }

    fn rebalance(&self, runs: Rank) -> (Rank, bool) {
        priority_order::rebalance(self.instance(), self.index, runs, &mut &*self)
    }

    /// Traces a scheduling step: the highest waiting level, and whether the step was requested.
    #[inline(always)]
    fn note_step(&self, mp: Option<&Mp>, (waits, asked): (Rank, bool)) {
        trace_hooks::step_taken(&self.trace, mp, (waits, asked), || {
            let is_it = |level| rank(level) == waits;
            self.queue.given().is_some_and(|(_, level)| is_it(level))
                || self.queue.held().is_some_and(is_it)
        });
    }

    fn resched_if_outranked(&self) {
        // An offered item counts, because the owner can take it back.
        let outranked = self.queue.waiting() > Some(self.level.get());
        if outranked && self.running().is_some() && self.resched.get().is_none() {
            self.resched_now();
        }
    }

    /// Makes the running microprocess give way when its kernel thread is unmasked, at the end of
    /// this call into the runtime.
    pub(crate) fn resched_now(&self) {
        self.resched.set(Some(Why::Outranked));
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        let slot = unsafe { KernelThread::here() }.slot();
        slot.pending.fetch_or(Event::Preempted.bit(), Ordering::Relaxed);
    }

    /// Handles *Preempted* or *Changed*. At the next switch point the running microprocess lets
    /// others go first, if there are any, and the VP serves all pending requests. Async-signal-safe
    /// where the VP is unmasked.
    pub(crate) fn notice(&self, why: Why) {
        // A microprocess whose quantum is over gives way to equals, too. A weaker reason must not
        // replace that one.
        if self.resched.get() != Some(Why::QuantumOver) {
            self.resched.set(Some(why));
        }
        self.countdown.set(0);
    }

    /// Queues a microprocess that another VP handed over through the injector.
    pub(in crate::scheduler) fn adopt(&self, mp: &'static Mp) {
        let level = mp.level.get();
        if self.instance().placer.static_level(mp).is_some_and(|now| now != level) {
            // Its priority has changed since it was handed over.
            let place = self.place(mp, Why::Reprioritised);
            return self.push_without_rebalance(mp, place, Origin::Wake);
        }
        if self.alone.get() {
            self.clear_alone();
        }
        // SAFETY: exclusively held, since it came from the injector, with the place that
        // `Owner::hand` left it.
        unsafe { self.queue.adopt(NonNull::from(mp)) };
        self.resched_if_outranked();
    }

    /// Applies a changed priority to the running microprocess.
    pub(crate) fn relevel(&self, mp: &'static Mp) {
        let instance = self.instance();
        let level = instance.placer.level(mp, Why::Reprioritised, || instance.now());
        mp.level.set(level);
        self.level.set(level);
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        unsafe { KernelThread::here() }.show(mp);
        self.resched_if_outranked();
        if !self.is_common_level(level) {
            self.publish_running(mp);
        }
    }
}
