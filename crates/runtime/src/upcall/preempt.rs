//! A microprocess is made to give way: where it enters or leaves the runtime, or, if it does
//! neither, anywhere in its code.
//!
//! ```text
//!   raise(Preempted) ── bit in the carrier's slot
//!     ├── it unmasks, or passes a switch point ─────────────────────────┐
//!     └── doorbell: trap in user mode: interrupted() injects a call of ─┴> deliver() ─> give_way
//! ```
//! A call is injected only where the microprocess can be switched away from and continued on
//! another kernel thread, that is where
//! - nothing that was read through GS is in use ([`KernelThread::begin_guard`]): no critical
//!   section, of the runtime's or the user's ([`crate::NoEvents`]);
//! - it runs on its own stack, with room, and no signal handler does: the mask of signals is its
//!   kernel thread's usual one;
//! - the code is not the C library's, the dynamic linker's or an allocator's, nor called by
//!   dlopen or dlclose (constructors): they hold locks there which the runtime itself may want
//!   while it is masked, or a kernel thread that begins, and then nobody would run the holder;
//! - it has thread-local storage of its own: a lean one gives way at switch points only.
//!
//! Elsewhere the doorbell rings again, a little later. After some times of that, where the event
//! source allows it, the kernel thread stands aside: it waits in the handler until its microprocess
//! has its turn again, as a returning one does, and the VP goes on under another one. That costs a
//! hand-off of kernel threads, but then no lock is held by a microprocess that only the runtime
//! could run ([`crate::upcall::handoff`]: such a waiter goes on without a VP if that is held up).

use std::sync::OnceLock;
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
use crate::upcall::{handoff, sticky};

/// So many attempts to inject a call, within a millisecond.
const MAX_INJECT_ATTEMPTS: u32 = 4;

/// The signals that a kernel thread of the runtime has blocked when no handler runs.
static USUAL_MASK: OnceLock<u64> = OnceLock::new();

/// Once a process, before the first microprocess runs.
pub(crate) fn prepare() {
    inject::prepare();
    regions::prepare();
    kumihimo_arch::hold_still(begin_still, end_still);
    kumihimo_arch::tls::while_linking(|| links(1), || links(-1));
    kumihimo_arch::while_executing(silence);
}

/// The calling kernel thread is not interrupted any more, or again.
fn silence(is: bool) {
    if standing() != Standing::Foreign {
        // SAFETY: not foreign: GS is set; nothing switches in between. A thread that stays is not
        // preempted, and so the holder of the bells' lock is not.
        unsafe {
            let kt = KernelThread::begin_guard();
            kt.events().disable_interrupts(is);
            kt.end_guard();
        }
    }
}

/// The running microprocess, if one calls, begins or ends a dlopen or dlclose.
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

/// A kernel thread of the pool begins: its mask of signals is the usual one.
pub(crate) fn note_usual_mask() {
    USUAL_MASK.get_or_init(|| {
        // SAFETY: all zeros is a valid set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: a live set to be written.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set) };
        first_word(&set)
    });
}

/// The kernel's own set is the first 64 bits of the C library's.
fn first_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: a sigset_t is at least that long, and aligned for it.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

/// *Preempted* or *Changed* waits, and the kernel thread was interrupted. False: not at this
/// instruction.
///
/// # Safety
/// In a signal handler on a kernel thread of the pool, with the context that the kernel gave it.
pub(crate) unsafe fn interrupted(context: *mut ucontext_t, vain: u32) -> bool {
    // SAFETY: a kernel thread of the pool: GS is set.
    let kt = unsafe { KernelThread::here() };
    if kt.is_guarded() {
        // Masked: told at the end of that. Just before or after: again.
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
        // It went on without, or is sticky.
        handoff::await_another_turn(kt, mp);
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

/// True: done. False: it cannot be, at this instruction.
///
/// # Safety
/// As [`interrupted`]; `mp` is what was interrupted, and its kernel thread is not guarded.
unsafe fn inject_into(mp: &Mp, context: *mut ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    let (pc, mask) = unsafe {
        (interrupted::position(context).program_counter, first_word(&(*context).uc_sigmask))
    };
    let usual = USUAL_MASK.get().copied().unwrap_or(0);
    if mp.fs.get() == 0 || mask & !usual != 0 || mp.linking.get() != 0 || regions::is_closed(pc) {
        return false;
    }
    let (low, _) = pool::bounds(mp);
    // SAFETY: the handler's own context; its microprocess's stack, of which nobody uses what is
    // below; the checks say that it may be switched away from. `upcall` unwinds nowhere: it aborts.
    // An error: on a stack that the application has made itself, or too near to the end of its own.
    unsafe { inject::inject(context, upcall, low.addr()) }.is_ok()
}

/// What is injected.
extern "C" fn upcall() {
    // SAFETY: injected into a microprocess only: its block is there.
    let errno = unsafe { *libc::__errno_location() };
    deliver();
    // SAFETY: the microprocess's own, wherever it is continued.
    unsafe { *libc::__errno_location() = errno };
}

/// Acts on the events raised for this carrier: takes in what waits outside, and gives way if that,
/// or a queued microprocess, goes before the caller.
#[cold]
#[inline(never)]
fn deliver() {
    // In a loop and not by the end of a `Carrier`: at a high rate each would otherwise begin within
    // the former, and the stack end.
    loop {
        if standing() == Standing::Foreign {
            return;
        }
        // SAFETY: not foreign: GS is set.
        if standing() == Standing::Sticky && !unsafe { KernelThread::here() }.is_in_handler() {
            // On a VP from here, if that is why it was called.
            drop(sticky::return_if_recalled());
        }
        // SAFETY: not foreign: GS is set.
        let kt = unsafe { KernelThread::begin_guard() };
        // In a handler, or without a VP, nothing switches; what waits stays, and is told when the
        // microprocess next enters the runtime.
        let may_switch = standing() == Standing::OnVp && !kt.is_in_handler();
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
            // Lost: the thread that took the VP looks at everything.
            let _ = kt.unmask_quietly();
            return;
        }
        // SAFETY: entered just now.
        let carrier = unsafe { Carrier::of(kt) };
        if !carrier.preempted(raised).release() {
            return;
        }
    }
}

impl KernelThread {
    /// Acts on the events raised for the calling kernel thread, if it may: see [`deliver`].
    #[inline(always)]
    pub(crate) fn deliver() {
        deliver();
    }

    /// Where turns are short, they are timed from here. Masked.
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
        bump(&vp.turn_clock.answers);
        let quantum = vp.instance().placer.turn_ns(mp).unwrap_or(u64::MAX);
        if vp.turn_is_over() || quantum == 0 {
            vp.resched.set(Some(Why::QuantumOver));
        }
        if mp.fs.get() == 0 {
            // A lean one: at its next switch point.
            return self;
        }
        let carrier = self.switch_point();
        carrier.vp().goes_on();
        carrier
    }
}
