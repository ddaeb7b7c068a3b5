//! Making a microprocess runnable on a VP, and waking one from a VP.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use kumihimo_policy::Why;
use kumihimo_queue::{Origin, Place, Taker};

use super::Vp;
use crate::microprocess::protocol::state::Wake;
use crate::microprocess::record::{Mp, Ref};
use crate::trace_hooks;

impl Vp {
    /// Makes the injected microprocesses runnable here. The caller must rebalance afterwards: see
    /// [`super::rebalance`].
    #[cold]
    pub(crate) fn take_injected(&self) {
        self.published.take_incoming();
        for item in self.queue.take_injected() {
            // SAFETY: an injected item is a record. The injecting thread held it exclusively and
            // handed it over.
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

    /// Puts a runnable microprocess into the queue. The caller holds `mp` exclusively.
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

    /// Obtains the place of `mp` from the policy. Holder of `mp` only.
    #[inline]
    pub(crate) fn place(&self, mp: &'static Mp, why: Why) -> Place {
        self.instance().placer.place(mp, why, || self.instance().now())
    }

    /// Whether a woken microprocess of `level`, put in front of its level, would run next.
    #[inline]
    pub(crate) fn would_run_next(&self, level: u8) -> bool {
        if self.is_common_level(level) {
            return !self.queue.has_above(level);
        }
        // Injected or offered microprocesses may outrank it.
        self.queue.injector_is_empty() && self.queue.waiting() <= Some(level)
    }

    /// Queues a woken microprocess in front of the others of its level. The caller is about to
    /// leave, and rebalances at that switch.
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
        // A woken microprocess stays on the VP that woke it, unless another VP is idle and worth
        // waking.
        let origin =
            if origin == Origin::Wake && self.may_share.get() { Origin::Yield } else { origin };
        // SAFETY: the caller holds `mp`; records are never moved or freed.
        unsafe { self.queue.push(NonNull::from(mp), place, origin) };
        let someone_idle = self.instance().any_idle();
        if let Some(taker) = self.queue.surplus(someone_idle) {
            self.given_away(taker);
        } else if self.may_share.get() && self.queue.len() == 1 {
            // A single offered item is no reason to wake another VP, but here a second one is
            // queued.
            self.instance().wake_idle(Taker::Any);
        }
    }

    /// Wakes a VP that can take the surplus that just became visible.
    ///
    /// The neighbour in the ring must be woken, since no other VP can take its items. For
    /// [`Taker::Any`], a single offered item does not justify waking a kernel thread: a short-lived
    /// child is taken back sooner. Idle VPs that spin, or that wake up periodically, find the item.
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
            self.note_wake(who.mp);
            self.place_woken(who.mp);
        }
    }

    /// Queues a woken microprocess on its home VP or here: see [`Instance::prefers_home`].
    fn place_woken(&self, mp: &'static Mp) {
        let home = usize::from(mp.home.load(Ordering::Relaxed));
        if home != self.index && self.instance().prefers_home(self, home) {
            self.instance().inject(home, mp);
        } else {
            self.make_ready(mp, Why::Woken, Origin::Wake);
        }
    }

    /// Wakes a microprocess so that it runs next on this VP. The caller is about to block.
    #[inline]
    pub(crate) fn wake_next(&self, who: Ref) {
        if who.wake() == Wake::Queue {
            self.note_wake(who.mp);
            let place = self.place(who.mp, Why::Woken);
            self.push_front(who.mp, place);
        }
    }
}
