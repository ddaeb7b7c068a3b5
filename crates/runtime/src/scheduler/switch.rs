//! The switch loop of a virtual processor.
//!
//! The body of the loop runs on the stack of the microprocess that leaves ([`Carrier::leave`],
//! [`Carrier::give_way`]). It picks the next microprocess and switches to it directly. The code on
//! the next stack ([`Carrier::arrive`]) publishes the previous microprocess (queues, parks or frees
//! it). Only then is its context complete and its stack free for others. When nothing is runnable,
//! the VP switches to its kernel thread's own stack (`idling.rs`).

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use kumihimo_arch::cpu;
use kumihimo_policy::{Priority, Why};
use kumihimo_queue::{Origin, Place};

use crate::kernel_thread::attributes;
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::vp::bump;
use crate::trace_hooks;

impl Carrier {
    /// Leaves the running microprocess and switches to the next one. Returns when the caller is
    /// continued, perhaps on another VP or kernel thread.
    #[inline(always)]
    pub(crate) fn leave(self, after: AfterSwitch) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.run_batch_if_due();
        match vp.pick() {
            Some(next) => {
                if after == AfterSwitch::Park {
                    self.begin_wait(vp.coarse_now());
                }
                self.switch(next, after)
            }
            None => {
                // The VP reads the clock before it idles in any case.
                vp.left_at.set(vp.instance().now());
                if after == AfterSwitch::Park {
                    self.begin_wait(vp.left_at.get());
                }
                self.switch_to_idle(after)
            }
        }
    }

    /// Records when the wait of the running microprocess begins.
    #[inline(always)]
    fn begin_wait(&self, now: u64) {
        if let Some(mp) = self.running() {
            mp.waits_since.store(now, Ordering::Relaxed);
        }
    }

    /// Lets microprocesses of the same or a higher level run before the running one. Returns at
    /// once if there are none.
    pub(crate) fn give_way(self, why: Why) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.resched.set(None);
        let level = vp.level.get();
        trace_hooks::gives_way(&vp.trace, why);
        match vp.pick_at_least(level) {
            None => {
                // A lean microprocess is not stopped where it is interrupted, but here.
                if self.must_suspend() {
                    return self.leave(AfterSwitch::Suspend);
                }
                if vp.is_retired() {
                    return self.switch_to_idle(AfterSwitch::Requeue(why));
                }
                if !vp.is_common_level(level) {
                    vp.publish_continuing();
                    // A rescheduled microprocess would come back here, since no other one is
                    // runnable here.
                    if vp.has_lost_core() {
                        return self.switch_to_idle(AfterSwitch::Requeue(why));
                    }
                }
                self
            }
            Some(next)
                if vp.queues_early && vp.is_common_level(level) && next.level.get() == level =>
            {
                // Queued before its context is saved. Only this VP takes items from this queue, and
                // it does not do so before the switch. Neither `surplus` nor `rebalance` is called
                // in between.
                // SAFETY: the running microprocess is held exclusively by this VP; records live for
                // ever.
                unsafe {
                    vp.queue.push(
                        NonNull::new_unchecked(self.kernel_thread().current.get().cast_mut()),
                        Place::back(level),
                        Origin::Yield,
                    )
                };
                self.switch_without_rebalance(next, AfterSwitch::Nothing)
            }
            Some(next) => self.switch(next, AfterSwitch::Requeue(why)),
        }
    }

    /// Lets microprocesses of a higher level run before the running one, or of its level with a
    /// smaller key, if there still are any.
    #[cold]
    fn give_way_to_higher(self) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.resched.set(None);
        let level = vp.level.get();
        trace_hooks::gives_way(&vp.trace, Why::Outranked);
        if vp.has_lost_core() {
            return self.switch_to_idle(AfterSwitch::Requeue(Why::Outranked));
        }
        let higher =
            if level < Priority::HIGHEST.get() { vp.pick_at_least(level + 1) } else { None };
        let next =
            higher.or_else(|| if vp.has_smaller_key() { vp.pick_at_least(level) } else { None });
        match next {
            None => {
                vp.publish_continuing();
                self
            }
            Some(next) => self.switch(next, AfterSwitch::Requeue(Why::Outranked)),
        }
    }

    /// Continues `next` on this VP at once. The caller holds `next` exclusively.
    #[inline(always)]
    pub(crate) fn switch(self, next: &'static Mp, after: AfterSwitch) -> Carrier {
        if !self.vp().is_common_level(next.level.get()) {
            self.vp().publish_running(next);
        }
        self.switch_without_rebalance(next, after)
    }

    #[inline(always)]
    fn switch_without_rebalance(self, next: &'static Mp, after: AfterSwitch) -> Carrier {
        self.kernel_thread().announce(next);
        if next.state.is_suspended() {
            return self.switch_to_another(next, after);
        }
        self.switch_to_runnable(next, after)
    }

    /// Switches to `next`, which was announced and is not suspended.
    #[inline(always)]
    pub(crate) fn switch_to_runnable(self, next: &'static Mp, after: AfterSwitch) -> Carrier {
        let vp = self.vp();
        let fs = if next.fs.get() == 0 { self.kernel_thread().fs } else { next.fs.get() };
        if next.waits_elsewhere() {
            return self.promise(next, after);
        }
        vp.account_for(next);
        vp.level.set(next.level.get());
        self.kernel_thread().show(next);
        // SAFETY: `next` was taken out of a queue, or is new. Its context is complete, and this VP
        // holds it exclusively.
        unsafe { self.cross(next, *next.context.get(), fs, after) }
    }

    /// Switches to the kernel thread's own stack, because nothing is runnable.
    #[inline(always)]
    pub(crate) fn switch_to_idle(self, after: AfterSwitch) -> Carrier {
        let kt = self.kernel_thread();
        if self.has_vp() {
            self.vp().account_block();
        }
        let (context, fs) = (kt.idle.get(), kt.fs);
        // SAFETY: the context of the carrier's own stack was saved when it ran its first
        // microprocess, and has not been resumed since.
        unsafe { self.cross(std::ptr::null(), *context, fs, after) }
    }

    /// Performs the pending action for the microprocess that left. Called first on the new stack.
    #[inline(always)]
    pub(crate) fn arrive(self) -> Carrier {
        self.apply_attributes();
        // A kernel thread that lost its VP inside `blocking` switches to its own stack without a
        // VP.
        if !self.has_vp() {
            return self;
        }
        let vp = self.vp();
        let after = vp.after_switch.replace(AfterSwitch::Nothing);
        // The most frequent actions are compared first: branches are predicted better than a
        // jump through a table.
        if after == AfterSwitch::Nothing {
            return self;
        }
        // SAFETY: an action is pending, so this is a record, which lives for ever. Its context is
        // saved, and this VP holds it exclusively.
        let by = unsafe { &*vp.left_by.get() };
        if after == AfterSwitch::Park {
            vp.commit_park(by);
        } else if after == AfterSwitch::FinishToJoiner {
            self.after_finish(by, Some(self.kernel_thread().current.get()));
        } else {
            self.arrive_otherwise(after, by);
        }
        self
    }

    /// Gives the kernel thread the attributes of what runs here now, before the previous
    /// microprocess is published.
    #[inline(always)]
    fn apply_attributes(&self) {
        let mp = self.running();
        let version = mp.map_or_else(attributes::idle_version, |mp| mp.attributes_version.get());
        if version != self.kernel_thread().applied.version.get() {
            self.kernel_thread().apply_attributes(mp);
        }
    }

    // Not inlined, to keep the frame of `leave` small.
    #[inline(never)]
    fn arrive_otherwise(&self, after: AfterSwitch, by: &'static Mp) {
        let vp = self.vp();
        match after {
            AfterSwitch::Nothing | AfterSwitch::Park => {}
            AfterSwitch::Requeue(why) => vp.make_ready(by, why, Origin::Yield),
            AfterSwitch::RequeueFront => vp.make_ready_front(by),
            AfterSwitch::Finish => self.after_finish(by, None),
            AfterSwitch::FinishToJoiner => unreachable!("`arrive` performs it"),
            AfterSwitch::Suspend => vp.suspend_after_switch(by),
        }
    }
}

impl Carrier {
    /// Switches contexts.
    ///
    /// # Safety
    /// `to` is the saved context of `next`, or of this kernel thread itself if `next` is null. It
    /// is complete and held exclusively by the caller. `fs` is its FS base.
    #[inline(always)]
    unsafe fn cross(
        self,
        next: *const Mp,
        to: cpu::Context,
        fs: usize,
        after: AfterSwitch,
    ) -> Carrier {
        // The slot stays masked. The microprocess that continues here inherits the right to the VP,
        // and `Carrier::here` turns that into a `Carrier` again.
        let this = std::mem::ManuallyDrop::new(self);
        let (vp, kt) = (this.vp(), this.kernel_thread());
        debug_assert_eq!(kt.slot().depth(), 1);
        let me = kt.current.replace(next);
        trace_hooks::switched(&vp.trace, me, next, after);
        vp.after_switch.set(after);
        vp.left_by.set(me);
        bump(&vp.counters.switches);
        let (save, own_fs) = if me.is_null() {
            (kt.idle.get(), kt.fs)
        } else {
            // SAFETY: the running microprocess's record.
            let me = unsafe { &*me };
            me.count_switch();
            (me.context.get(), if me.fs.get() == 0 { kt.fs } else { me.fs.get() })
        };
        // SAFETY: the caller's promise. Only `arrive`, on the new stack, publishes the old context
        // (queues, parks or frees it).
        unsafe {
            if fs == own_fs {
                cpu::switch_same(save, to);
            } else if vp.fsgsbase {
                cpu::switch_fs(save, to, fs);
            } else {
                cpu::switch_prctl(save, to, fs);
            }
            Carrier::here().arrive()
        }
    }

    /// Handles a switch point in an operation that does not block: gives way if a higher level is
    /// runnable or the quantum is over.
    #[inline]
    pub(crate) fn switch_point(self) -> Carrier {
        let vp = self.vp();
        let n = vp.countdown.get();
        if n == 0 {
            vp.slow_steps();
        } else {
            vp.countdown.set(n - 1);
        }
        match vp.resched.get() {
            Some(_) if self.must_suspend() => self.leave(AfterSwitch::Suspend),
            Some(why) => self.preempt(why),
            None => self,
        }
    }

    /// Gives way for `why`, and counts a preemption if another microprocess has run.
    #[inline(never)]
    fn preempt(self, why: Why) -> Carrier {
        let preempted = self.running().map(|mp| (mp, mp.switches.load(Ordering::Relaxed)));
        let carrier = match why {
            Why::Outranked => self.give_way_to_higher(),
            _ => self.give_way(why),
        };
        if let Some((mp, before)) = preempted
            && mp.switches.load(Ordering::Relaxed) != before
        {
            mp.counters.count_preemption();
            mp.is_counted.store(true, Ordering::Relaxed);
        }
        carrier
    }
}
