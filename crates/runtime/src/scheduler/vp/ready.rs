//! How a microprocess becomes runnable on a VP, and how one is woken from it.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use kumihimo_policy::Why;
use kumihimo_queue::{Origin, Place, Taker};

use super::Vp;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::state::Wake;
use crate::trace_hooks;

impl Vp {
    /// Wake-ups from elsewhere become runnable here. The caller rebalances later: see
    /// [`super::rebalance`].
    #[cold]
    pub(crate) fn take_injected(&self) {
        self.published.take_incoming();
        for item in self.queue.take_injected() {
            // SAFETY: an injected item is a record that the injecting side had for itself and
            // handed over.
            let mp = unsafe { &*item.as_ptr() };
            if mp.handed.replace(false) {
                self.adopt(mp);
            } else {
                let place = self.place(mp, Why::Woken);
                trace_hooks::ready(&self.trace, self.index, mp, place.level, Why::Woken);
                self.push_without_rebalance(mp, place, Origin::Wake);
            }
        }
    }

    #[cold]
    pub(in crate::scheduler) fn woken_before(&self, mp: &'static Mp) {
        self.make_ready(mp, Why::Woken, Origin::Wake);
    }

    /// Puts a runnable microprocess that is ours alone into the queue.
    #[inline]
    pub(crate) fn make_ready(&self, mp: &'static Mp, why: Why, origin: Origin) {
        let place = self.place(mp, why);
        trace_hooks::ready(&self.trace, self.index, mp, place.level, why);
        self.push(mp, place, origin);
    }

    pub(in crate::scheduler) fn make_ready_front(&self, mp: &'static Mp) {
        let place = self.place(mp, Why::Yielded);
        trace_hooks::ready(&self.trace, self.index, mp, place.level, Why::Yielded);
        self.push(mp, Place { front: true, ..place }, Origin::Yield);
    }

    /// Asks the policy. Holder of `mp` only.
    #[inline]
    pub(crate) fn place(&self, mp: &'static Mp, why: Why) -> Place {
        self.instance().placer.place(mp, why, || self.instance().now())
    }

    /// Whether a woken one of this level, put in front of its level, would be the next one to run.
    #[inline]
    pub(crate) fn would_run_next(&self, level: u8) -> bool {
        if self.is_common_level(level) {
            return !self.queue.has_above(level);
        }
        // What was sent here, or is on offer, may outrank it.
        self.queue.injector_is_empty() && self.queue.waiting() <= Some(level)
    }

    /// A woken microprocess goes before the others of its level. The caller is about to leave, and
    /// rebalances then.
    pub(crate) fn push_front(&self, mp: &'static Mp, place: Place) {
        trace_hooks::ready(&self.trace, self.index, mp, place.level, Why::Woken);
        self.push_without_rebalance(mp, Place { front: true, ..place }, Origin::Wake);
    }

    #[inline]
    fn push(&self, mp: &'static Mp, place: Place, origin: Origin) {
        if self.is_common_level(place.level) {
            self.push_without_rebalance(mp, place, origin);
        } else {
            self.push_and_rebalance(mp, place, origin);
        }
    }

    #[inline]
    pub(in crate::scheduler) fn push_without_rebalance(
        &self,
        mp: &'static Mp,
        place: Place,
        origin: Origin,
    ) {
        if place.level > self.level.get() && self.running().is_some() {
            self.resched_now();
        }
        if self.alone.get() {
            self.clear_alone();
        }
        // A woken one stays with those that woke it, unless another VP has nothing to do and is
        // worth waking.
        let origin =
            if origin == Origin::Wake && self.may_share.get() { Origin::Yield } else { origin };
        // SAFETY: the caller holds `mp`; records are never moved or freed.
        unsafe { self.queue.push(NonNull::from(mp), place, origin) };
        let someone_idle = self.instance().any_idle();
        if let Some(taker) = self.queue.surplus(someone_idle) {
            self.given_away(taker);
        } else if self.may_share.get() && self.queue.len() == 1 {
            // What is on offer was no reason, but it is not alone any more.
            self.instance().wake_idle(Taker::Any);
        }
    }

    /// Surplus became visible to others. A neighbour in the ring must see it, since nobody else can
    /// take it. A single offered item is no reason to wake a kernel thread (a short-lived child is
    /// back sooner): idle VPs that are up, or look in, will find it.
    #[cold]
    pub(in crate::scheduler) fn given_away(&self, taker: Taker) {
        if taker != Taker::Any || !self.queue.is_empty() {
            self.instance().wake_idle(taker);
        }
    }

    /// Wakes a microprocess from this VP.
    #[inline]
    pub(crate) fn wake(&self, who: Ref) {
        if who.wake() == Wake::Queue {
            self.place_woken(who.mp);
        }
    }

    /// A woken microprocess goes home or stays here: see [`Instance::prefers_home`].
    fn place_woken(&self, mp: &'static Mp) {
        let home = usize::from(mp.home.load(Ordering::Relaxed));
        if home != self.index && self.instance().prefers_home(self, home) {
            self.instance().inject(home, mp);
        } else {
            self.make_ready(mp, Why::Woken, Origin::Wake);
        }
    }

    /// Wakes a microprocess so that it runs next, here: the caller is about to block.
    #[inline]
    pub(crate) fn wake_next(&self, who: Ref) {
        if who.wake() == Wake::Queue {
            let place = self.place(who.mp, Why::Woken);
            self.push_front(who.mp, place);
        }
    }
}
