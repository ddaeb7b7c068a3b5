//! Priority order, as far as it is the VP's: when it shows what it runs, and what it does
//! about its queue ([`crate::priority::priority_order`] has the protocol).
//!
//! A VP rebalances where it switches, where it takes a look at the clock, when something becomes
//! ready that does not run at once, and when it was asked. As long as all microprocesses of the
//! process have one and the same level, none of that can matter: each VP knows that level, and one
//! comparison with it is all that it costs.

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
    /// Something of this level is there. Whether levels differ.
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
                    // Not where it says that levels differ.
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

    /// From now on. All VPs take a step, so that each shows what it has and looks at the others.
    #[cold]
    fn levels_differ(&self) {
        for (i, vp) in self.vps.iter().enumerate() {
            vp.common_level.0.store(LEVELS, Ordering::Relaxed);
            self.force_step(i);
        }
    }

    /// Whether microprocesses of different levels were ever here; or those of another address
    /// space, or an account of CPU time, make a difference now.
    pub(crate) fn has_levels(&self) -> bool {
        // SeqCst: see `sticky::begin`.
        match self.own_common_level.0.load(Ordering::SeqCst) {
            LEVELS => true,
            NO_LEVEL => board::has_rules(),
            _ if board::others() == 0 => board::has_rules(),
            own => board::has_rules() || board::is_another_level_there(own),
        }
    }

    /// Whether they differ, now that `mp` is there. By its holder.
    pub(crate) fn levels_differ_for(&self, mp: &Mp) -> bool {
        if let Some(level) = self.placer.static_level(mp) {
            self.note_level(level);
        }
        self.has_levels()
    }

    /// The level of one that is about to be sent to a VP, if levels differ. Holder of `mp` only.
    #[inline]
    pub(crate) fn level_if_they_differ(&self, mp: &Mp) -> Option<u8> {
        if self.common_level.0.load(Ordering::Relaxed) == LEVELS {
            return Some(self.placer.level(mp, Why::Woken, || self.now()));
        }
        // A policy that looks at more is asked once, by the VP, which then finds out.
        self.placer.static_level(mp).filter(|level| self.note_level(*level))
    }

    /// As [`inject`](Instance::inject), where levels differ.
    #[cold]
    pub(crate) fn send(&self, to: usize, mp: &'static Mp, level: u8) {
        // Once it is in it may run, end, and be another.
        let id = mp.id();
        let begin = |to| trace_hooks::sent(&self.trace, to, id, level);
        let put = |to| {
            self.put(to, mp);
            trace_hooks::put(&self.trace, to, id);
        };
        priority_order::send(self, to, rank(level), begin, put, |vp| self.force_step(vp));
    }

    /// Other address spaces want the cores: from now on VPs rebalance, which is where they ask for
    /// theirs.
    pub(crate) fn note_other_spaces(&self) {
        if self.common_level.0.load(Ordering::Relaxed) != LEVELS
            && self.common_level.0.swap(LEVELS, Ordering::Relaxed) != LEVELS
        {
            self.levels_differ();
        }
    }

    fn force_step(&self, vp: usize) {
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
    fn is_stuck(&self, vp: usize) -> bool {
        self.queues.is_stuck(vp)
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
        // SAFETY: queued items are records, and this one is ours now.
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
    /// Whether all microprocesses have had one and the same level so far.
    #[inline]
    pub(crate) fn has_common_level(&self) -> bool {
        self.common_level.0.load(Ordering::Relaxed) != LEVELS
    }

    /// Whether all have this level: then it makes no difference.
    #[inline(always)]
    pub(crate) fn is_common_level(&self, level: u8) -> bool {
        self.common_level.0.load(Ordering::Relaxed) == level
    }

    /// Whether more than one level was ever used. By anyone.
    pub(crate) fn has_levels(&self) -> bool {
        self.common_level.0.load(Ordering::Relaxed) == LEVELS
    }

    /// One of this level is the next to run here, or runs on.
    #[cold]
    pub(in crate::scheduler) fn publish_running(&self, mp: &Mp) {
        let level = mp.level.get();
        if self.instance().note_level(level) {
            trace_hooks::begins_step(&self.trace);
            // What comes in from here on is compared with this one, and not with the one that
            // leaves: nobody would look again at what is shown already.
            self.level.set(level);
            // Not every switch has looked around: a child that runs first, or the joiner.
            if !self.queue.injector_is_empty() {
                self.take_injected();
            }
            let step_taken = self.rebalance(rank(level));
            self.note_step(Some(mp), step_taken);
            self.ask_for_core(level);
            // On the kernel thread's own stack no microprocess runs yet that could have been asked
            // to reschedule.
            if step_taken.0 > rank(level) && self.running().is_none() {
                self.resched_now();
            }
        }
    }

    /// The running one does not leave.
    #[cold]
    pub(in crate::scheduler) fn publish_continuing(&self) {
        if let Some(mp) = self.running() {
            self.publish_running(mp);
        }
    }

    /// It runs here next, without a [`switch`](crate::scheduler::carrier::Carrier::switch).
    pub(crate) fn publish_next(&self, next: &Mp) {
        if !self.is_common_level(next.level.get()) {
            self.publish_running(next);
        }
    }

    /// Nothing is runnable here.
    pub(crate) fn publish_idle(&self) {
        if self.is_common_level(LEVELS) {
            trace_hooks::begins_step(&self.trace);
            self.note_step(None, self.rebalance(NONE));
        }
    }

    /// Its level may make a difference.
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

    /// In the middle of whatever the running one does.
    pub(in crate::scheduler) fn rebalance_now(&self) {
        if self.is_common_level(LEVELS) && self.running().is_some() {
            self.rebalance(rank(self.level.get()));
        }
    }

    fn rebalance(&self, runs: Rank) -> (Rank, bool) {
        priority_order::rebalance(self.instance(), self.index, runs, &mut &*self)
    }

    /// Notes for the trace that a step was taken: what waits, and whether this VP had been asked.
    #[inline(always)]
    fn note_step(&self, mp: Option<&Mp>, (waits, asked): (Rank, bool)) {
        trace_hooks::step_taken(&self.trace, mp, (waits, asked), || {
            let is_it = |level| rank(level) == waits;
            self.queue.given().is_some_and(|(_, level)| is_it(level))
                || self.queue.held().is_some_and(is_it)
        });
    }

    fn resched_if_outranked(&self) {
        // What is on offer counts: the owner can have it back.
        let outranked = self.queue.waiting() > Some(self.level.get());
        if outranked && self.running().is_some() && self.resched.get().is_none() {
            self.resched_now();
        }
    }

    /// The running one gives way as soon as it is unmasked: at the end of this call of the runtime.
    pub(crate) fn resched_now(&self) {
        self.resched.set(Some(Why::Outranked));
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        let slot = unsafe { KernelThread::here() }.slot();
        slot.pending.fetch_or(Event::Preempted.bit(), Ordering::Relaxed);
    }

    /// *Preempted* or *Changed*: at the next switch point the running one lets others go first, if
    /// there are any, and the VP looks at all that it was asked. Async-signal-safe where the VP is
    /// unmasked.
    pub(crate) fn notice(&self, why: Why) {
        // A microprocess that has used its quantum up lets equals go first too.
        if self.resched.get() != Some(Why::QuantumOver) {
            self.resched.set(Some(why));
        }
        self.countdown.set(0);
    }

    /// One that another VP has handed over, from the injector.
    pub(in crate::scheduler) fn adopt(&self, mp: &'static Mp) {
        let level = mp.level.get();
        if self.instance().placer.static_level(mp).is_some_and(|now| now != level) {
            // Its priority has changed on the way.
            let place = self.place(mp, Why::Reprioritised);
            return self.push_without_rebalance(mp, place, Origin::Wake);
        }
        if self.alone.get() {
            self.clear_alone();
        }
        // SAFETY: ours, from the injector, with the place that `Owner::hand` left it.
        unsafe { self.queue.adopt(NonNull::from(mp)) };
        self.resched_if_outranked();
    }

    /// The priority of the running one has changed.
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
