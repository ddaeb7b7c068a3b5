//! THE loop: how a VP switches between microprocesses.
//!
//! The loop's body runs on the stack of the microprocess that leaves ([`Carrier::leave`],
//! [`Carrier::give_way`]), picks the next one and switches to it directly. What is to be done with
//! the one that left is done on the stack of the one that came ([`Carrier::arrive`]): only then is
//! its context complete and its stack free for others. When nothing is runnable the VP goes to its
//! kernel thread's own stack (`idling.rs`).

use std::ptr::NonNull;

use kumihimo_arch::cpu;
use kumihimo_policy::{Priority, Why};
use kumihimo_queue::{Origin, Place};

use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::vp::bump;
use crate::trace_hooks;

impl Carrier {
    /// The running microprocess leaves and the next one comes. Returns when the caller is
    /// continued, perhaps elsewhere.
    #[inline(always)]
    pub(crate) fn leave(self, after: AfterSwitch) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.run_batch_if_due();
        match vp.pick() {
            Some(next) => self.switch(next, after),
            None => self.switch_to_idle(after),
        }
    }

    /// The running microprocess lets those of its level, or above, go first. Comes back at once if
    /// there are none.
    pub(crate) fn give_way(self, why: Why) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.resched.set(None);
        let level = vp.level.get();
        trace_hooks::gives_way(&vp.trace, why);
        match vp.pick_at_least(level) {
            None => {
                if !vp.is_common_level(level) {
                    vp.publish_continuing();
                    // Asked to reschedule it would come here again, and nobody is there to leave
                    // to.
                    if vp.has_lost_core() {
                        return self.switch_to_idle(AfterSwitch::Requeue(why));
                    }
                }
                self
            }
            Some(next)
                if vp.queues_early && vp.is_common_level(level) && next.level.get() == level =>
            {
                // Queued before its context is left: nobody but this VP takes it out, and not
                // before the switch. Neither `surplus` nor `rebalance` is called in between.
                // SAFETY: the running microprocess is ours; records live for ever.
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

    /// The running microprocess lets those of a higher level go first, if there are any (still).
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
        let next = if level < Priority::HIGHEST.get() { vp.pick_at_least(level + 1) } else { None };
        match next {
            None => {
                vp.publish_continuing();
                self
            }
            Some(next) => self.switch(next, AfterSwitch::Requeue(Why::Outranked)),
        }
    }

    /// `next` continues here, now. It is the caller's to run.
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

    /// It was announced, and is not suspended.
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
        // SAFETY: `next` was taken out of a queue (or is new): its context is complete and it is
        // ours alone.
        unsafe { self.cross(next, *next.context.get(), fs, after) }
    }

    /// Nothing is runnable: to the kernel thread's own stack.
    #[inline(always)]
    pub(crate) fn switch_to_idle(self, after: AfterSwitch) -> Carrier {
        let kt = self.kernel_thread();
        let (context, fs) = (kt.idle.get(), kt.fs);
        // SAFETY: the carrier's own context was saved when it ran its first microprocess, and
        // waits.
        unsafe { self.cross(std::ptr::null(), *context, fs, after) }
    }

    /// What the one that left wanted done. First thing on the new stack.
    #[inline(always)]
    pub(crate) fn arrive(self) -> Carrier {
        // A kernel thread that lost its VP inside `blocking` comes to its own stack without one.
        if !self.has_vp() {
            return self;
        }
        let vp = self.vp();
        let after = vp.after_switch.replace(AfterSwitch::Nothing);
        // The two most frequent ones by themselves: branches are predicted better than a jump
        // through a table.
        if after == AfterSwitch::Nothing {
            return self;
        }
        // SAFETY: something is to be done with it, so it is a record, which lives for ever; its
        // context is saved and it is ours alone.
        let by = unsafe { &*vp.left_by.get() };
        if after == AfterSwitch::Park {
            vp.commit_park(by);
        } else {
            self.arrive_otherwise(after, by);
        }
        self
    }

    // Not inlined: the frame of `leave` stays small.
    #[inline(never)]
    fn arrive_otherwise(&self, after: AfterSwitch, by: &'static Mp) {
        let vp = self.vp();
        match after {
            AfterSwitch::Nothing | AfterSwitch::Park => {}
            AfterSwitch::Requeue(why) => vp.make_ready(by, why, Origin::Yield),
            AfterSwitch::RequeueFront => vp.make_ready_front(by),
            AfterSwitch::Finish => self.after_finish(by, None),
            AfterSwitch::FinishToJoiner => {
                self.after_finish(by, Some(self.kernel_thread().current.get()));
            }
            AfterSwitch::Suspend => vp.suspend_after_switch(by),
        }
    }
}

impl Carrier {
    /// The switch proper.
    ///
    /// # Safety
    /// `to` is the saved context of `next` (null: of this kernel thread itself), complete and ours;
    /// `fs` is its FS base.
    #[inline(always)]
    unsafe fn cross(
        self,
        next: *const Mp,
        to: cpu::Context,
        fs: usize,
        after: AfterSwitch,
    ) -> Carrier {
        // The mask stays: the microprocess that continues here has the right, and `arrive` on the
        // other side makes it a `Carrier` again.
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
            (me.context.get(), if me.fs.get() == 0 { kt.fs } else { me.fs.get() })
        };
        // SAFETY: the caller's promise. The old context is published (queued, parked, freed) by
        // `arrive` only, on the new stack.
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

    /// A switch point inside something that does not block: gives way if something of a higher
    /// level came, or the quantum is over.
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
            Some(Why::Outranked) => self.give_way_to_higher(),
            Some(why) => self.give_way(why),
            None => self,
        }
    }
}
