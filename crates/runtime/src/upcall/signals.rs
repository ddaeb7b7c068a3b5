//! Signals of the program: what a signal handler must know of the code that it interrupted, and the
//! interruption of a microprocess so that it handles a signal itself.
//!
//! `kumi run` passes a signal for one thread to a microprocess in three steps: it stores the signal
//! with the thread, calls [`interrupt`], and sends a signal to the kernel thread that this returns.
//! A microprocess that waits is woken; one that is queued looks after the event that took its VP
//! ([`set_after_events`]); one that runs is interrupted by the kernel. Between any two of these
//! states it either has a permit left, so that its next wait ends at once, or passes the hook.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use kumihimo_events::barrier;
use kumihimo_events::sched::Event;

use crate::kernel_thread::gs_record::{self, KernelThread, Standing, standing};
use crate::microprocess::protocol::state::Wake;
use crate::microprocess::waiter::{Waiter, Who};
use crate::scheduler::instance;
use crate::scheduler::thread_place;

static AFTER_EVENTS: OnceLock<fn()> = OnceLock::new();

/// Has `after` called in a microprocess, as code of the program would call it, whenever events of
/// its VP were delivered: after a preemption, and after a section that was masked when
/// [`call_back`] was called. Only the first call in a process takes effect.
pub fn set_after_events(after: fn()) {
    let _ = AFTER_EVENTS.set(after);
}

#[inline]
pub(crate) fn after_events() {
    if let Some(after) = AFTER_EVENTS.get()
        && interrupts_program()
    {
        after();
    }
}

/// Whether the code that a signal handler has interrupted is the program's: in a microprocess, in
/// no section of the runtime, so that it may wait. Async-signal-safe.
#[inline]
pub fn interrupts_program() -> bool {
    // SAFETY: not foreign.
    standing() != Standing::Foreign && unsafe { gs_record::may_switch_here() }
}

/// Whether the calling kernel thread belongs to the runtime. Async-signal-safe.
#[inline]
pub fn is_on_runtimes_thread() -> bool {
    standing() != Standing::Foreign
}

/// Has the hook of [`set_after_events`] called once the section of the runtime that a signal
/// handler has interrupted ends. Async-signal-safe.
pub fn call_back() {
    if standing() == Standing::Foreign {
        return;
    }
    // SAFETY: not foreign: GS is set. A signal handler stays on its kernel thread.
    let kt = unsafe { KernelThread::here() };
    kt.slot().pending.fetch_or(Event::Changed.bit(), Ordering::SeqCst);
}

/// Leaves the calling microprocess a permit, so that its next wait ends at once. Async-signal-safe.
///
/// For a signal handler, in which [`Waiter::wake`] must not be called: that ends a section without
/// events, where the caller can be moved to another kernel thread. sigreturn(2) would then set the
/// alternate stack of the former kernel thread there, and two threads would share it.
pub fn leave_permit() {
    if let Some(mp) = gs_record::current_mp() {
        // It runs, or waits on this kernel thread by its parker: there is nothing to queue.
        let done = mp.reference().wake();
        debug_assert!(done != Wake::Queue, "a microprocess that has interrupted itself is parked");
    }
}

/// Interrupts a microprocess: its wait ends, or its next one does if it does not wait. Returns the
/// ID of the kernel thread on which it runs, in user mode or in the kernel; that thread may run
/// something else by now. `None` for one that waits or is queued, and for a kernel thread.
///
/// Does not block.
pub fn interrupt(waiter: &Waiter) -> Option<u32> {
    waiter.wake();
    let Who::Micro(who) = waiter.who() else { return None };
    // As in a request to suspend (`lifecycle/suspend.rs`): either this thread sees the microprocess
    // shown, or the thread that switches to it sees what the caller has stored.
    if barrier::probe().is_ok() {
        barrier::heavy();
    }
    instance::visit(|instance| thread_place::tid_of(instance?, *who))
}
