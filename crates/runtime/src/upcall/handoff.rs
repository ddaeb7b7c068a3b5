//! A kernel thread goes away with its microprocess, and the virtual processor goes on under a
//! spare.
//!
//! The kernel's half ([`kumihimo_events::kernel`]) has the pool and the hand-off; here is what the
//! user scheduler does about it. *Blocked*: the VP is looked at for what runs next. *Resumed*: a
//! kernel thread runs microprocesses on the VP until it is gone. *Unblocked* comes in one of two
//! ways: told by a trap, the kernel thread waits for its turn where it stands; not told, the
//! microprocess runs on until it enters the runtime, finds its VP gone, and leaves its kernel
//! thread like one that was woken from outside.
//!
//! `blocking` announces that it goes away. The first of the two keeps the VP: a call that returns
//! before the spare ran continues as if nothing had happened (protocol and models:
//! [`kumihimo_events::slot`]).

use std::sync::atomic::Ordering;

use kumihimo_arch::cpu::Context;
use kumihimo_events::return_queue::Offer;

use crate::kernel_thread::gs_record::{KernelThread, Standing, standing};
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;
use crate::upcall::sticky;

/// The calling kernel thread, entered, keeps its microprocess where it is, and its VP is anyone's.
/// Async-signal-safe; only where
/// [`KernelThread::may_stand_aside`](kumihimo_events::KernelThread::may_stand_aside) says so.
pub(crate) fn give_away(kt: &KernelThread) {
    // SAFETY: entered: the VP is here, and outlives its carriers.
    trace_hooks::blocked(unsafe { &(*kt.vp()).trace });
    kt.events().stand_aside();
    kt.detach_vp();
}

/// Queues the interrupted microprocess, which has no VP, and waits on its own kernel thread until a
/// VP is handed over. Returns without one if its VP cannot come. Called in a signal handler;
/// async-signal-safe.
pub(crate) fn await_turn(instance: &Instance, mp: &'static Mp) {
    // SAFETY: a microprocess without a VP: GS is set.
    let kt = unsafe { KernelThread::begin_guard() };
    kt.mask();
    let home = usize::from(mp.home.load(Ordering::Relaxed)) % instance.vps.len();
    let thread = kt.events();
    loop {
        if let Some(ticket) = thread.begin_wait(Some(home as u32)) {
            // SAFETY: the running microprocess is ours, and so is its context, which is not in use:
            // a scheduler that picks its entry finds that it waits here.
            unsafe { *mp.context.get() = Context::NULL };
            mp.waits_on.set(std::ptr::from_ref(kt).cast());
            mp.ticket.set(ticket);
            trace_hooks::unblocked(&instance.trace, kt.tid(), mp);
            instance.inject(home, mp);
        }
        let handed = thread.wait_for_vp(|| instance.turn_wait_is_over(home, mp));
        // It was released together with all others that wait for that VP, but must not run.
        if handed || !mp.state.is_suspended() {
            break;
        }
    }
    if let Some(vp) = thread.vp() {
        let vp = &instance.vps[vp as usize];
        kt.attach_vp(vp);
        instance.kernel.unbind();
        vp.level.set(mp.level.get());
        vp.account_for(mp);
        kt.show(mp);
        vp.recheck_core();
        trace_hooks::runs(&vp.trace, mp);
    }
    kt.unmask();
}

/// The calling kernel thread keeps its microprocess where it is and gives its VP away, until that
/// microprocess has its turn again. Async-signal-safe; only where
/// [`KernelThread::may_stand_aside`](kumihimo_events::KernelThread::may_stand_aside) says so.
///
/// # Safety
/// In a signal handler that has interrupted `mp`, outside of the runtime.
pub(crate) unsafe fn stand_aside(mp: &'static Mp) {
    // SAFETY: a microprocess: GS is set.
    let kt = unsafe { KernelThread::begin_guard() };
    if kt.enter() {
        kt.in_handler(|| {
            let _ = kt.events().take_raised();
            give_away(kt);
            await_turn(kt.instance(), mp);
        });
    }
    // What was raised meanwhile is told when the microprocess next enters the runtime.
    let _ = kt.unmask_quietly();
}

/// In a handler that has interrupted `mp`, which computes without a VP: waits for one, where that
/// could be in a handler at all; if it is sticky, it was recalled. Async-signal-safe.
pub(crate) fn await_another_turn(kt: &KernelThread, mp: &'static Mp) {
    if kt.events().may_stand_aside() {
        kt.in_handler(|| {
            if standing() == Standing::Sticky {
                sticky::end(kt.instance(), kt, mp);
            }
            await_turn(kt.instance(), mp);
        });
    }
}

impl Carrier {
    /// On the kernel thread's own stack: `next` runs here; or, if it waits for its turn on another
    /// kernel thread, the VP goes there. None: it did.
    #[must_use]
    pub(crate) fn go_on_with(self, next: &'static Mp) -> Option<Carrier> {
        if !next.waits_elsewhere() {
            return Some(self.switch(next, AfterSwitch::Nothing));
        }
        let kt = self.kernel_thread();
        // The waiter set it before it was queued. From here it may leave its kernel thread, and
        // that may end.
        let ticket = next.ticket.get();
        let kernel = &self.vp().instance().kernel;
        kt.announce(next);
        // One that went on without is not suspended by that: it is when it wants a VP again.
        if next.state.is_suspended() && !kernel.is_detached(ticket) && self.vp().try_suspend(next) {
            return Some(self);
        }
        // It has its own kernel thread, where it is seen.
        kt.clear_shown();
        match kernel.hand(ticket, kt.events()) {
            Offer::Accepted => {
                kt.detach_vp();
                // Masked, as in the pool.
                std::mem::forget(self);
                return None;
            }
            Offer::Switchable => return self.go_on_with(next),
            Offer::EntryDropped => {}
        }
        // It went on without: the entry is dropped, and the VP comes round again, so that it need
        // not compute beside it any more.
        trace_hooks::went_on(&self.vp().trace, next, || {
            kernel.slot(ticket.thread()).tid.load(Ordering::Relaxed)
        });
        kernel.call_back(ticket.thread());
        Some(self)
    }

    /// As [`switch`](Carrier::switch), to one that waits for its turn on another kernel thread.
    #[cold]
    pub(crate) fn promise(self, next: &'static Mp, after: AfterSwitch) -> Carrier {
        self.vp().promised.set(Some(next));
        self.switch_to_idle(after)
    }
}
