//! Preemption: makes a microprocess give way, where it enters or leaves the runtime, or otherwise
//! anywhere in its code.
//!
//! ```text
//!   raise(Preempted) ── bit in the carrier's slot
//!     ├── carrier unmasks, or passes a switch point ────────────────────┐
//!     └── doorbell: trap in user mode: interrupted() injects a call of ─┴> deliver() ─> give_way
//! ```
//! A call is injected only where the microprocess can be switched away from and continued on
//! another kernel thread. That requires that
//! - no value that was read through GS is in use ([`KernelThread::begin_guard`]): the code is in no
//!   critical section of the runtime or of the user ([`crate::NoEvents`]);
//! - the microprocess runs on its own stack, with room, and not in a signal handler: the signal
//!   mask is the usual one of its kernel thread;
//! - the code does not belong to the C library, the dynamic linker or an allocator, and dlopen or
//!   dlclose has not called it (constructors). Such code holds locks that the masked runtime or a
//!   starting kernel thread may need, and then no thread would run the holder;
//! - the microprocess has thread-local storage of its own: a lean microprocess gives way at switch
//!   points only.
//!
//! Elsewhere the doorbell rings again a little later. After several vain attempts, and if the event
//! source allows it, the kernel thread stands aside. It waits in the signal handler until its
//! microprocess is scheduled again, as after a block, and the VP continues under another kernel
//! thread. That costs a hand-off between kernel threads. In return, a lock that the microprocess
//! holds does not depend on the runtime: such a waiter continues without a VP if its VP is stalled
//! ([`crate::upcall::handoff`]).

use std::sync::atomic::Ordering;

use kumihimo_arch::{inject, interrupted, regions};
use kumihimo_events::sched::Event;
use kumihimo_policy::Why;
use libc::ucontext_t;

use crate::kernel_thread::gs_record::{KernelThread, Standing, standing};
use crate::memory::pool;
use crate::microprocess::record::Mp;
use crate::priority::placement::SHORT;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::vp::bump;
use crate::trace_hooks;
use crate::upcall::{change_check, handoff, signals, sticky, sticky_return};

/// Number of attempts to inject a call, within a millisecond, before the kernel thread stands
/// aside.
const MAX_INJECT_ATTEMPTS: u32 = 4;

/// Installs the hooks of the preemption. Called once per process, before the first microprocess
/// runs.
pub(crate) fn prepare() {
    inject::prepare();
    regions::prepare();
    kumihimo_arch::hold_still(begin_still, end_still);
    kumihimo_arch::tls::while_linking(|| links(1), || links(-1));
    kumihimo_arch::while_executing(silence);
}

/// Disables or re-enables interruptions of the calling kernel thread.
fn silence(is: bool) {
    if standing() != Standing::Foreign {
        // SAFETY: not foreign: GS is set; nothing switches in between. An uninterruptible thread is
        // not preempted, so neither is the holder of the doorbells' lock.
        unsafe {
            let kt = KernelThread::begin_guard();
            kt.events().disable_interrupts(is);
            kt.end_guard();
        }
    }
}

/// Adjusts the count of nested dlopen and dlclose calls of the running microprocess, if one runs.
fn links(step: i32) {
    if standing() != Standing::Foreign {
        // SAFETY: not foreign: GS is set; nothing switches in between.
        unsafe {
            let kt = KernelThread::begin_guard();
            if let Some(mp) = kt.current.get().as_ref() {
                mp.linking.set(mp.linking.get() + step);
            }
            kt.end_guard();
        }
    }
}

fn begin_still() {
    if standing() != Standing::Foreign {
        // SAFETY: not foreign: GS is set. Ended by `end_still`.
        unsafe { KernelThread::begin_guard() };
    }
}

fn end_still() {
    if standing() != Standing::Foreign {
        // SAFETY: as above; nothing has switched since `begin_still`.
        unsafe { KernelThread::here().end_guard() };
    }
}

/// Returns the first 64 bits of the set, which are the kernel's own signal set.
fn first_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: a sigset_t is at least that long, and aligned for it.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

/// Acts on a pending *Preempted* or *Changed* after a doorbell has interrupted the kernel thread.
/// Returns false if that is impossible at this instruction.
///
/// # Safety
/// Called in a signal handler on a kernel thread of the pool, with the context that the kernel
/// passed to it.
pub(crate) unsafe fn interrupted(context: *mut ucontext_t, vain: u32) -> bool {
    // SAFETY: a kernel thread of the pool: GS is set.
    let kt = unsafe { KernelThread::here() };
    if kt.is_guarded() {
        // Masked: the end of the masked section delivers the event. Just before or after a masked
        // section: the doorbell must ring again.
        return kt.slot().is_masked();
    }
    // SAFETY: null or a record, which lives for ever.
    let Some(mp) = (unsafe { kt.current.get().as_ref() }) else { return true };
    if kt.is_in_handler() || !matches!(standing(), Standing::OnVp | Standing::Sticky) {
        return true;
    }
    if standing() == Standing::Sticky && !sticky::is_recalled(kt.instance(), mp) {
        return true;
    }
    if kt.events().vp().is_none() {
        // The microprocess continued without a VP, or is sticky.
        sticky_return::await_another_turn(kt, mp);
        return true;
    }
    // SAFETY: the caller's promise; GS is set, so is the instance.
    if unsafe { inject_into(mp, context) } {
        kt.instance().injected.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    if vain < MAX_INJECT_ATTEMPTS || !kt.events().may_stand_aside() {
        return false;
    }
    kt.instance().stood_aside.fetch_add(1, Ordering::Relaxed);
    // SAFETY: in a handler, not guarded.
    unsafe { handoff::stand_aside(mp) };
    true
}

/// Injects a call of [`upcall`]. Returns false if that is impossible at this instruction.
///
/// # Safety
/// As [`interrupted`]; `mp` was interrupted, and its kernel thread is not guarded.
unsafe fn inject_into(mp: &Mp, context: *mut ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    let (pc, mask) = unsafe {
        (interrupted::position(context).program_counter, first_word(&(*context).uc_sigmask))
    };
    // Other signals are blocked in a signal handler.
    let own = mp.attributes().signal_mask;
    if mp.fs.get() == 0 || mask & !own != 0 || mp.linking.get() != 0 || regions::is_closed(pc) {
        return false;
    }
    let (low, _) = pool::bounds(mp);
    // SAFETY: the context is the handler's own, and the area below the stack pointer of its
    // microprocess is unused. The checks above allow switching away. `upcall` never unwinds: a
    // panic aborts. `inject` fails on a stack that the application made itself, and too near to the
    // end of the microprocess's stack.
    unsafe { inject::inject(context, upcall, low.addr()) }.is_ok()
}

/// The injected call.
extern "C" fn upcall() {
    // SAFETY: only called in a microprocess that has a thread-local block.
    let errno = unsafe { *libc::__errno_location() };
    deliver();
    // SAFETY: the microprocess's own errno, on whichever kernel thread it continues.
    unsafe { *libc::__errno_location() = errno };
}

/// Delivers the events raised for this carrier: collects injected work, and gives way if a queued
/// microprocess precedes the caller.
#[cold]
#[inline(never)]
fn deliver() {
    deliver_events();
    signals::after_events();
}

fn deliver_events() {
    // A loop, rather than delivery in `Carrier::drop`. At a high event rate each delivery would
    // otherwise nest inside the previous one until the stack overflows.
    loop {
        if standing() == Standing::Foreign {
            return;
        }
        if standing() == Standing::Sticky {
            // SAFETY: not foreign: GS is set.
            let kt = unsafe { KernelThread::here() };
            if !kt.is_in_handler() && !kt.is_guarded() {
                // If a recall raised the event, the caller is on a VP from here.
                drop(sticky_return::return_if_recalled());
            }
        }
        // SAFETY: not foreign: GS is set.
        let kt = unsafe { KernelThread::begin_guard() };
        // No switch in a handler, without a VP, or by the holder of a lock of `arch`. The events
        // stay pending until the microprocess next enters the runtime.
        let may_switch =
            standing() == Standing::OnVp && !kt.is_in_handler() && !kt.is_guarded_twice();
        let raised = if may_switch {
            kt.events().take_raised()
        } else {
            kt.events().leave_raised();
            0
        };
        if raised == 0 {
            // SAFETY: as above.
            unsafe { kt.end_guard() };
            return;
        }
        if !kt.enter() {
            // The VP was taken over; the thread that took it checks for all work.
            let _ = kt.unmask_quietly();
            return;
        }
        // SAFETY: entered just now.
        let carrier = unsafe { Carrier::of(kt) };
        let Some(carrier) = change_check::bind_if_changed(carrier) else { return };
        if !carrier.preempted(raised).release() {
            return;
        }
    }
}

impl KernelThread {
    /// Delivers the events raised for the calling kernel thread, if possible: see [`deliver`].
    #[inline(always)]
    pub(crate) fn deliver() {
        deliver();
    }

    /// Starts the timer for quanta that are too short for the timekeeper. Masked.
    pub(crate) fn time_short_turns(&self) {
        if self.instance().placer.has_short_turns() {
            self.events().ring_every(SHORT.as_nanos() as u64);
        }
    }
}

impl Carrier {
    fn preempted(self, raised: u32) -> Carrier {
        let vp = self.vp();
        let Some(mp) = self.running() else { return self };
        trace_hooks::told(&vp.trace, raised);
        vp.notice(if raised & Event::Changed.bit() != 0 {
            Why::Reprioritised
        } else {
            Why::Outranked
        });
        vp.look_for_newcomers();
        bump(&vp.turn_clock.answers);
        let quantum = vp.instance().placer.turn_ns(mp).unwrap_or(u64::MAX);
        let is_over = vp.turn_is_over() && vp.has_had_quantum(mp, vp.instance().now());
        if is_over || quantum == 0 || vp.is_retired() {
            vp.resched.set(Some(Why::QuantumOver));
        }
        if mp.fs.get() == 0 {
            // A lean microprocess gives way at its next switch point.
            return self;
        }
        let carrier = self.switch_point();
        carrier.vp().goes_on();
        carrier
    }
}
