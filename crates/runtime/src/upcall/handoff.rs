//! Hand-off: a kernel thread blocks with its microprocess, and the VP continues under a spare
//! thread.
//!
//! The kernel's half ([`kumihimo_events::kernel`]) has the pool and the hand-off itself. This
//! module has the user scheduler's handlers for the events:
//! - *Blocked*: names the level of what runs next on the VP.
//! - *Resumed*: a kernel thread runs microprocesses on the VP until it loses the VP.
//! - *Unblocked*: reported in one of two ways. If a trap reports it, the kernel thread waits for
//!   its turn where it stands. Otherwise the microprocess runs on until it enters the runtime,
//!   finds that its VP was taken over, and leaves its kernel thread as if woken from outside.
//!
//! `blocking` announces the block beforehand. The VP then stays with the returning thread or goes
//! to the spare, whichever is first. A call that returns before the spare has run continues without
//! any hand-off (protocol and models: [`kumihimo_events::slot`]).

use std::sync::atomic::Ordering;

use kumihimo_arch::cpu::Context;
use kumihimo_events::barrier;
use kumihimo_events::return_queue::Offer;
use kumihimo_events::sched::Event;

use crate::kernel_thread::gs_record::KernelThread;
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;

/// Gives away the VP of the calling kernel thread, which has entered and keeps its microprocess.
/// Any kernel thread may take the VP. Async-signal-safe. Only where
/// [`KernelThread::may_stand_aside`](kumihimo_events::KernelThread::may_stand_aside) is true.
pub(crate) fn give_away(kt: &KernelThread) {
    // SAFETY: the kernel thread has entered, so it carries the VP, which outlives its carriers.
    let vp = unsafe { &*kt.vp() };
    trace_hooks::blocked(&vp.trace);
    vp.account_block();
    kt.events().stand_aside();
    kt.detach_vp();
}

/// Queues the interrupted microprocess, which has no VP, and blocks its kernel thread until a VP is
/// handed over. Returns without a VP if the VP is stalled. Called in a signal handler;
/// async-signal-safe.
pub(crate) fn await_turn(instance: &Instance, mp: &'static Mp) {
    // SAFETY: a microprocess without a VP: GS is set.
    let kt = unsafe { KernelThread::begin_guard() };
    kt.mask();
    let home = instance.open_home(mp);
    let thread = kt.events();
    loop {
        if let Some(ticket) = thread.begin_wait(Some(home as u32)) {
            // SAFETY: the caller holds the running microprocess and its context exclusively. The
            // context is unused: a scheduler that picks the entry finds that the microprocess waits
            // here.
            unsafe { *mp.context.get() = Context::NULL };
            mp.waits_on.set(std::ptr::from_ref(kt).cast());
            mp.ticket.set(ticket);
            trace_hooks::unblocked(&instance.trace, kt.tid(), mp);
            instance.inject(home, mp);
        }
        let handed = thread.wait_for_vp(|| instance.turn_wait_is_over(home, mp));
        // A suspended microprocess must not run, although it was released together with all others
        // that wait for that VP.
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
        // The scheduler looked at the state word before it handed the VP over. A suspension since
        // then has raised its event for a thread that waits, and the VP that came has discarded it.
        // Pairs with the barrier in `suspend.rs`.
        barrier::light();
        if mp.state.is_suspended() {
            instance.kernel.raise(vp.index as u32, Event::Changed);
        }
        vp.recheck_core();
        trace_hooks::runs(&vp.trace, mp);
    }
    kt.unmask();
}

/// Gives away the VP of the calling kernel thread, and blocks the thread with its microprocess
/// until that microprocess gets a VP again. Async-signal-safe. Only where
/// [`KernelThread::may_stand_aside`](kumihimo_events::KernelThread::may_stand_aside) is true.
///
/// # Safety
/// Called in a signal handler that has interrupted `mp` outside of the runtime.
pub(crate) unsafe fn stand_aside(mp: &'static Mp) {
    // SAFETY: a microprocess: GS is set.
    let kt = unsafe { KernelThread::begin_guard() };
    if kt.enter() {
        kt.in_handler(|| {
            let _ = kt.events().take_raised();
            give_away(kt);
            mp.counters.count_preemption();
            mp.is_counted.store(true, Ordering::Relaxed);
            await_turn(kt.instance(), mp);
        });
    }
    // Events raised meanwhile are delivered when the microprocess next enters the runtime.
    let _ = kt.unmask_quietly();
}

impl Carrier {
    /// Runs `next` from the kernel thread's own stack. If `next` waits for its turn on another
    /// kernel thread, hands the VP over to that thread and returns `None`.
    #[must_use]
    pub(crate) fn go_on_with(self, next: &'static Mp) -> Option<Carrier> {
        if !next.waits_elsewhere() {
            return Some(self.switch(next, AfterSwitch::Nothing));
        }
        let kt = self.kernel_thread();
        // The waiter set the ticket before it was queued. From here on it may leave its kernel
        // thread, which may then end.
        let ticket = next.ticket.get();
        let kernel = &self.vp().instance().kernel;
        kt.announce(next);
        // A suspended microprocess that continued without a VP is not suspended here, but when it
        // requests a VP again.
        if next.state.is_suspended() && !kernel.is_detached(ticket) && self.vp().try_suspend(next) {
            return Some(self);
        }
        // `next` has its own kernel thread, whose slot shows it.
        kt.clear_shown();
        match kernel.hand(ticket, kt.events()) {
            Offer::Accepted => {
                kt.detach_vp();
                // The kernel thread stays masked, as it is in the pool.
                std::mem::forget(self);
                return None;
            }
            Offer::Switchable => return self.go_on_with(next),
            Offer::EntryDropped => {}
        }
        // `next` has continued without a VP, so its entry is dropped. The thread is called back, so
        // that it waits for the VP again instead of computing beside it.
        trace_hooks::went_on(&self.vp().trace, next, || {
            kernel.slot(ticket.thread()).tid.load(Ordering::Relaxed)
        });
        kernel.call_back(ticket.thread());
        Some(self)
    }

    /// As [`switch`](Carrier::switch), to a microprocess that waits for its turn on another kernel
    /// thread.
    #[cold]
    pub(crate) fn promise(self, next: &'static Mp, after: AfterSwitch) -> Carrier {
        self.vp().promised.set(Some(next));
        self.switch_to_idle(after)
    }
}
