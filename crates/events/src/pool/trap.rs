//! Signal handlers of the crate: SIGTRAP on the way back from a sleep (*Unblocked*), and the
//! signals that interrupt a running kernel thread ([`crate::preempt`]).
//!
//! The kernel sends the SIGTRAP of a perf event with `sigtrap` by task work, when the kernel thread
//! returns to user mode (perf_event_open(2)). Task work interrupts no wait in the kernel, so that
//! no system call ends early.
//!
//! # Interrupted system calls
//!
//! Another signal may interrupt a system call while the trap is due. The kernel delivers the trap
//! first, since it is synchronous, and the SA_RESTART flag of our handler makes the kernel restart
//! the call. But the other handler may lack SA_RESTART in order to end the call. So our handler
//! blocks the other signal while it runs (`sa_mask`), and makes the call fail with EINTR if the
//! pending signal requires that (`fail_restarted_call`). The same applies if a doorbell rings
//! during a call: as a trap that became due in the kernel, or as a signal (`restarts_call`).
//!
//! A signal between this check and the restart is too late to end the call, as it is between any
//! handler and a restart. A signal without a handler, such as SIGSTOP, ends with EINTR those calls
//! that no handler restarts (signal(7)), as in a program that handles SIGCONT.

use kumihimo_arch::cpu;

use crate::linux::bpf::SIG_DATA;
use crate::pool::kernel_thread::KernelThread;
use crate::preempt::cpu_profiler::{self, Cause, PROFILE, Running};
use crate::preempt::doorbell::DOORBELL;
use crate::preempt::signal_handler::{
    Handlers, chain_to_previous, fail_restarted_call, restarts_call,
};
use crate::preempt::thread_sampler;

/// The offset, in the record that GS points to on a kernel thread of the pool, of the address of
/// its [`KernelThread`]. The user scheduler guarantees it.
pub const GS_THREAD: usize = 16;

/// The `si_code` of a perf event (asm-generic/siginfo.h). The libc crate does not define it.
const TRAP_PERF: i32 = 6;
/// The `si_code` of signals that the kernel sends by itself or for a BPF program.
const SI_KERNEL: i32 = 0x80;
/// The offset in siginfo_t (asm-generic/siginfo.h, 64 bits) of `si_perf_data`, after `si_addr`, and
/// of `si_value`, after `si_pid` and `si_uid`. For a breakpoint, the value there is 0.
const DATA: usize = 24;

/// The signal handlers of the crate.
pub(crate) const HANDLERS: Handlers = Handlers { trap: on_sigtrap, signal: on_preempt_signal };

/// Handles the preemption signal.
extern "C" fn on_preempt_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: as in `on_sigtrap`.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's siginfo_t; a signal with one of these codes has a value.
    let value = unsafe {
        if matches!((*info).si_code, libc::SI_QUEUE | libc::SI_TIMER) {
            (*info).si_value().sival_ptr.addr() as u64
        } else {
            0
        }
    };
    let ours = matches!(value, DOORBELL | PROFILE);
    if (ours || thread_sampler::is_request(value)) && restarts_call(context.cast()) {
        // SAFETY: the context that the kernel passed to this handler.
        unsafe { fail_restarted_call(context.cast()) };
    }
    if thread_sampler::is_request(value) {
        // SAFETY: the kernel's context.
        unsafe { thread_sampler::record(value, context.cast()) };
    } else if value == PROFILE {
        // SAFETY: the kernel's arguments, for a signal of a timer. Only kernel threads of the pool
        // are followed.
        unsafe { cpu_profiler::record(Cause::timer(info), context.cast(), |at| running(at)) };
    } else if ours && cpu::gs_base() != 0 {
        // GS is 0 if the signal was on its way to a kernel thread that has left the pool.
        // SAFETY: the signal is sent only to kernel threads of the pool, where GS, if set, points
        // to such a record; the context is the kernel's.
        unsafe {
            (*cpu::gs_word::<GS_THREAD>().cast::<KernelThread>()).on_doorbell(context.cast())
        };
    } else if !ours {
        // SAFETY: the arguments are the kernel's.
        unsafe { chain_to_previous(signal, info, context) };
    }
    // SAFETY: as in `on_sigtrap`.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the microprocess that the calling thread runs, if this stack pointer is in its stack.
///
/// # Safety
/// GS is 0, or this is a kernel thread of the pool.
unsafe fn running(stack_pointer: usize) -> Option<Running> {
    if cpu::gs_base() == 0 {
        return None;
    }
    // SAFETY: as in `on_preempt_signal`.
    let thread = unsafe { &*cpu::gs_word::<GS_THREAD>().cast::<KernelThread>() };
    thread.scheduler()?.running(stack_pointer)
}

extern "C" fn on_sigtrap(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the errno of this kernel thread, or of the microprocess on it: the interrupted code
    // may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's siginfo_t, 128 bytes.
    let (code, data) = unsafe { ((*info).si_code, info.byte_add(DATA).cast::<u64>().read()) };
    let data = if matches!(code, TRAP_PERF | SI_KERNEL) { data } else { 0 };
    if let Some(cause) = Cause::clock(data) {
        if restarts_call(context.cast()) {
            // SAFETY: the context that the kernel passed to this handler.
            unsafe { fail_restarted_call(context.cast()) };
        }
        // SAFETY: the kernel's context. Only kernel threads of the pool are followed.
        unsafe { cpu_profiler::record(cause, context.cast(), |at| running(at)) };
    } else if (data == DOORBELL || data == SIG_DATA) && cpu::gs_base() == 0 {
        // The event was closed but lives on in a child of fork(2), or the doorbell was rung for the
        // kernel thread that used this slot before.
    } else if data == DOORBELL {
        // Before `on_doorbell`, which may inject a call where the interrupted code continues.
        if restarts_call(context.cast()) {
            // SAFETY: the context that the kernel passed to this handler.
            unsafe { fail_restarted_call(context.cast()) };
        }
        // SAFETY: as below; the kernel's context.
        unsafe {
            (*cpu::gs_word::<GS_THREAD>().cast::<KernelThread>()).on_doorbell(context.cast())
        };
    } else if data == SIG_DATA {
        // SAFETY: only kernel threads of the pool are attached, between `attach` and `detach`.
        // There GS is set, and its record contains the address. The kernel thread is the one that
        // runs here.
        let thread = unsafe { &*cpu::gs_word::<GS_THREAD>().cast::<KernelThread>() };
        // A signal from a BPF program is late if another core woke the thread at once. By then the
        // thread may have detected the loss of its VP and masked its slot. Its current system call
        // need not be the one in which it slept.
        //
        // Nor is the signal of the event in time after the handler for SIGBUS, which blocks all
        // signals while it repairs a board that masked code found truncated.
        let in_time = code == TRAP_PERF;
        if let Some(scheduler) = thread.scheduler().filter(|_| thread.slot().depth() == 0) {
            scheduler.unblocked();
        }
        if in_time || restarts_call(context.cast()) {
            // SAFETY: the context that the kernel passed to this handler.
            unsafe { fail_restarted_call(context.cast()) };
        }
    } else {
        // SAFETY: the arguments are the kernel's.
        unsafe { chain_to_previous(signal, info, context) };
    }
    // SAFETY: as above; a handler returns on the kernel thread where it began.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests;
