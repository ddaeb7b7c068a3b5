//! What the kernel calls for a signal that has a handler of the program.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use kumihimo_arch::signal_mask::NEVER_BLOCKED;
use kumihimo_runtime::signals::{
    call_back, interrupts_program, is_on_runtimes_thread, leave_permit,
};

use crate::real::libc;
use crate::signal::kick;
use crate::signal::queue::Info;
use crate::signal::thread::Signals;
use crate::signal::{action, aside, mask, process, section};
use crate::start::phase;
use crate::thread::record::own_signals;

/// Signals of an instruction that cannot continue, if the kernel sends them.
fn is_fault(signal: c_int, info: &Info) -> bool {
    let is_synchronous = matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS
    );
    is_synchronous && info.si_code > 0
}

/// Whether a handler has interrupted code of the program: not the runtime, nor one of its handlers,
/// which block more than the program does.
///
/// # Safety
/// The context of the running handler.
pub(crate) unsafe fn is_program(own: &Signals, context: *const libc::ucontext_t) -> bool {
    if !is_on_runtimes_thread() {
        return true;
    }
    // SAFETY: the caller's promise.
    let mask = unsafe { mask::of_context(context) };
    interrupts_program() && mask & !own.mask.load(Ordering::Relaxed) == 0
}

/// # Safety
/// Called by the kernel.
pub(super) unsafe extern "C-unwind" fn entry(signal: c_int, info: *mut Info, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    if !phase::has_started() {
        // SAFETY: as this function.
        return unsafe { action::call(signal, info, context) };
    }
    let own = own_signals();
    // SAFETY: the kernel's.
    let told = unsafe { &*info };
    if is_fault(signal, told) {
        // SAFETY: as this function.
        return unsafe { run(own, signal, info, context) };
    }
    let is_kick = kick::is_kick(told);
    // SAFETY: the kernel's context.
    let is_program = unsafe { is_program(own, context) };
    if is_program && own.depth.get() == 0 {
        if !is_kick {
            // SAFETY: as above.
            return unsafe { run(own, signal, info, context) };
        }
        // No handler of another signal looks into the queue meanwhile.
        own.depth.set(1);
        let taken = own.queue.take(signal);
        own.depth.set(0);
        // Without one, the kick was for a thread that has moved, or has handled it already.
        if let Some(mut taken) = taken {
            // SAFETY: as above.
            unsafe { run(own, signal, &raw mut taken, context) };
        }
        return;
    }
    if is_kick {
        // The signal waits in the queue of its thread, which looks there at the end of its section.
        call_back();
        // After a handler with SA_RESTART the kernel goes on with the futex(2) in which a kernel
        // thread waits. The sender has woken a microprocess.
        if !is_on_runtimes_thread() {
            end_wait(own);
        }
    } else if !is_program {
        aside::put(signal, told);
    } else if own.queue.add(signal, told) {
        // It is handled at the end of the section, or when the wait has ended.
        end_wait(own);
    }
}

/// Ends the wait of the calling thread, or its next one.
fn end_wait(own: &Signals) {
    if is_on_runtimes_thread() {
        leave_permit();
    } else if let Some(waiter) = own.waiter() {
        waiter.wake();
    }
}

/// Runs the program's handler.
///
/// # Safety
/// In a signal handler with this context, which has interrupted code of the program.
unsafe fn run(own: &Signals, signal: c_int, info: *mut Info, context: *mut libc::ucontext_t) {
    let action = action::of(signal);
    own.handled.set(own.handled.get() + 1);
    if !action.restarts() {
        own.interrupting.set(own.interrupting.get() + 1);
    }
    // The handler may wait, and then handles others.
    let was_handling = own.is_handling.replace(false);
    let is_micro = is_on_runtimes_thread();
    // SAFETY: the kernel's context.
    let mask_of_code = unsafe { mask::of_context(context) };
    if is_micro {
        // The kernel has set this mask; the handler may wait, and go on elsewhere.
        let during = mask_of_code | action.mask_during(signal);
        // A mask that has SIGBUS is not the kernel's: see `NEVER_BLOCKED`.
        let kept = own.mask.load(Ordering::Relaxed) & NEVER_BLOCKED;
        mask::note(own, during | kept);
        // SAFETY: the program's handler, as the kernel would call it.
        unsafe { action.call(signal, info, context) };
        // What comes from here on waits for the end of this function: with the mask open again, a
        // handler could follow a handler in this frame until the stack is full.
        own.depth.set(own.depth.get() + 1);
        // The handler may have changed the mask to return to.
        // SAFETY: as above.
        let after = unsafe { mask::of_context(context) } | kept;
        mask::note(own, after);
        // A signal for the process that came meanwhile was blocked here, and perhaps everywhere.
        process::adopt(own, after);
        // SAFETY: as above.
        unsafe { forget_signal_stack(context) };
        own.depth.set(own.depth.get() - 1);
    } else {
        // SAFETY: as above.
        unsafe { action.call(signal, info, context) };
    }
    own.is_handling.set(was_handling);
    section::look(own);
}

/// Has the end of the handler (sigreturn(2)) leave the alternate stack as it is. The microprocess
/// may go on on another kernel thread, which has one of its own.
///
/// # Safety
/// The kernel's context of the running handler.
unsafe fn forget_signal_stack(context: *mut libc::ucontext_t) {
    /// No valid flag: the kernel does not change the stack then (`restore_altstack` in
    /// kernel/signal.c), and goes on.
    const REFUSED: c_int = 0x4b4d;
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_stack.ss_flags = REFUSED };
}
