//! *Unblocked*: SIGTRAP on the way back from a sleep, before the interrupted call returns. And the
//! signals by which one that runs is interrupted ([`crate::preempt`]).
//!
//! perf_event_open(2), `sigtrap`: the kernel sends the signal by task work, on the kernel thread's
//! way to user mode. Nothing that waits in the kernel is interrupted by that, so no call ends
//! early.
//!
//! But another signal may interrupt the call, and the trap is delivered first, being synchronous:
//! then our SA_RESTART decides that the call is made again, although the other handler may be there
//! to end it. So that one waits (the mask) until ours has seen to it (`fail_restarted_call`). So
//! too where a doorbell rings in the middle of a call: as a trap that was due in the kernel, or as
//! a signal (`restarts_call`). One that comes after that look, and before the call is made again,
//! comes too late, as it does between any handler and such a call. What a signal without any
//! handler interrupts, SIGSTOP say, is EINTR for calls that no handler lets go on (signal(7)): as
//! in a program that handles SIGCONT.

use kumihimo_arch::cpu;

use crate::linux::bpf::SIG_DATA;
use crate::pool::kernel_thread::KernelThread;
use crate::preempt::doorbell::DOORBELL;
use crate::preempt::signal_handler::{
    Handlers, chain_to_previous, fail_restarted_call, restarts_call,
};
use crate::preempt::thread_sampler;

/// Where the record that GS points to on a kernel thread of the pool has the address of its
/// [`KernelThread`]: the user scheduler's promise.
pub const GS_THREAD: usize = 16;

/// siginfo_t's `si_code` for a perf event (asm-generic/siginfo.h), which libc has no name for.
const TRAP_PERF: i32 = 6;
/// For what the kernel sends by itself, also where a BPF program has it sent.
const SI_KERNEL: i32 = 0x80;
/// Offset in siginfo_t (asm-generic/siginfo.h, 64 bits) of `si_perf_data`, after `si_addr`, and of
/// `si_value`, after `si_pid` and `si_uid`. Of a breakpoint it is 0.
const DATA: usize = 24;

/// The signal handlers of the crate.
pub(crate) const HANDLERS: Handlers = Handlers { trap: on_sigtrap, signal: on_preempt_signal };

/// Of the preemption signal.
extern "C" fn on_preempt_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: as in `on_sigtrap`.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's siginfo_t; one with this code has a value.
    let value = unsafe {
        if (*info).si_code == libc::SI_QUEUE {
            (*info).si_value().sival_ptr.addr() as u64
        } else {
            0
        }
    };
    let ours = value == DOORBELL;
    if (ours || thread_sampler::is_request(value)) && restarts_call(context.cast()) {
        // SAFETY: what the kernel gave us.
        unsafe { fail_restarted_call(context.cast()) };
    }
    if thread_sampler::is_request(value) {
        // SAFETY: the kernel's context.
        unsafe { thread_sampler::record(value, context.cast()) };
    } else if ours && cpu::gs_base() != 0 {
        // It may have been on its way to a kernel thread that has left the pool.
        // SAFETY: sent to
        // kernel threads of the pool only, where GS, if set, points to such a record; the kernel's
        // context.
        unsafe {
            (*cpu::gs_word::<GS_THREAD>().cast::<KernelThread>()).on_doorbell(context.cast())
        };
    } else if !ours {
        // SAFETY: as the kernel called us.
        unsafe { chain_to_previous(signal, info, context) };
    }
    // SAFETY: as in `on_sigtrap`.
    unsafe { *libc::__errno_location() = errno };
}

extern "C" fn on_sigtrap(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: this kernel thread's errno, or that of the microprocess on it: the interrupted code
    // may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's siginfo_t, 128 bytes.
    let (code, data) = unsafe { ((*info).si_code, info.byte_add(DATA).cast::<u64>().read()) };
    let data = if matches!(code, TRAP_PERF | SI_KERNEL) { data } else { 0 };
    if (data == DOORBELL || data == SIG_DATA) && cpu::gs_base() == 0 {
        // Of an event that was closed and lives on, in a child of fork(2); or rung for the kernel
        // thread that had this one's slot before.
    } else if data == DOORBELL {
        // First: a call may be injected where it goes on.
        if restarts_call(context.cast()) {
            // SAFETY: what the kernel gave us.
            unsafe { fail_restarted_call(context.cast()) };
        }
        // SAFETY: as below; the kernel's context.
        unsafe {
            (*cpu::gs_word::<GS_THREAD>().cast::<KernelThread>()).on_doorbell(context.cast())
        };
    } else if data == SIG_DATA {
        // SAFETY: only kernel threads of the pool are attached, between `attach` and `detach`,
        // where GS is set and its record has the address there; the kernel thread is the one that
        // runs here.
        let thread = unsafe { &*cpu::gs_word::<GS_THREAD>().cast::<KernelThread>() };
        // What a BPF program has sent comes a moment late where the thread was woken on another
        // core at once: then it may have found out by itself, and masked; and what is its next
        // system call is not the one that it slept in.
        let in_time = code == TRAP_PERF;
        if let Some(scheduler) =
            thread.scheduler().filter(|_| in_time || thread.slot().depth() == 0)
        {
            scheduler.unblocked();
        }
        if in_time || restarts_call(context.cast()) {
            // SAFETY: what the kernel gave us.
            unsafe { fail_restarted_call(context.cast()) };
        }
    } else {
        // SAFETY: as the kernel called us.
        unsafe { chain_to_previous(signal, info, context) };
    }
    // SAFETY: as above; a handler returns on the kernel thread where it began.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests;
