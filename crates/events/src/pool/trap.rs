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

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use kumihimo_arch::{cpu, interrupted};

use crate::linux::bpf::SIG_DATA;
use crate::pool::kernel_thread::KernelThread;
use crate::preempt::doorbell::DOORBELL;
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

/// Signals are numbered 1 to 64.
const SIGNALS: usize = 65;

/// What the application had installed for a signal, for those that are not ours: handler and flags.
static PREVIOUS: [[AtomicUsize; 2]; SIGNALS] =
    [const { [AtomicUsize::new(libc::SIG_DFL), AtomicUsize::new(0)] }; SIGNALS];

/// Installs the handler of SIGTRAP, once a process, beside an earlier one of the application's,
/// which gets the traps that are not ours.
///
/// # Errors
/// What sigaction(2) says.
pub fn install() -> io::Result<()> {
    install_for(libc::SIGTRAP, on_sigtrap)
}

/// As [`install`], for preemption by `signal`.
///
/// # Errors
/// What sigaction(2) says.
pub(crate) fn install_signal(signal: i32) -> io::Result<()> {
    install_for(signal, on_preempt_signal)
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

static INSTALLED: Mutex<u64> = Mutex::new(0);

fn install_for(signal: i32, handler: Handler) -> io::Result<()> {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed >> (signal - 1) & 1 == 1 {
        return Ok(());
    }
    let action = action(handler, discarded_signals());
    // SAFETY: zeroed like `action`.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: two live actions; the handler is async-signal-safe.
    if unsafe { libc::sigaction(signal, &action, &mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let place = &PREVIOUS[signal as usize];
    place[0].store(previous.sa_sigaction, Ordering::Relaxed);
    place[1].store(previous.sa_flags as usize, Ordering::Relaxed);
    *installed |= 1 << (signal - 1);
    // The kernel does not discard this signal any more: the other handlers block it, so that a
    // sample request is answered by the code that they interrupted.
    update_masks(*installed, discarded_signals());
    Ok(())
}

/// How the kernel is to call `handler`; the signals of `open` (bit n-1 is signal n) are not held
/// back meanwhile.
fn action(handler: Handler, open: u64) -> libc::sigaction {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // On the alternate stack: the microprocess's own may be nearly full. SA_RESTART for calls that
    // another signal interrupts meanwhile.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: a live set. All, but for the C library's own two (set*id waits for every kernel
    // thread), ...
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    // ... for faults, which would be no reports otherwise, ...
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];
    let open = IGNORED_BY_DEFAULT.into_iter().filter(|signal| open >> (signal - 1) & 1 == 1);
    for signal in faults.into_iter().chain(open) {
        // SAFETY: as above. ... and for what nobody handles.
        unsafe { libc::sigdelset(&mut action.sa_mask, signal) };
    }
    action
}

/// Signals that nobody handles and that do nothing: the kernel drops them, but not while they are
/// held back. Then it looks for another kernel thread that takes them, and whichever it finds has
/// its system call interrupted: EINTR, for no reason that the program could know of (seen with
/// SIGCHLD).
fn discarded_signals() -> u64 {
    let is_dropped = |signal: i32| {
        // SAFETY: all zeros is a valid sigaction.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a live action to be written.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0;
        asked && matches!(now.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    };
    IGNORED_BY_DEFAULT
        .into_iter()
        .filter(|signal| is_dropped(*signal))
        .fold(0, |all, signal| all | 1 << (signal - 1))
}

/// Ignored by default (signal(7)).
const IGNORED_BY_DEFAULT: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];

/// Updates the masks of our handlers after the application began or ceased to handle one of the
/// ignored signals. Acts at every 64th call, for about a microsecond.
pub(crate) fn update_signal_masks() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    if CALLS.fetch_add(1, Ordering::Relaxed) % 64 != 63 {
        return;
    }
    let open = discarded_signals();
    let Ok(installed) = INSTALLED.try_lock().map(|installed| *installed) else { return };
    update_masks(installed, open);
}

/// Our handlers, as far as they are installed, hold back what is handled by now, and no more what
/// is not.
fn update_masks(installed: u64, open: u64) {
    for signal in (1..=64).filter(|signal| installed >> (signal - 1) & 1 == 1) {
        let handler: Handler = if signal == libc::SIGTRAP { on_sigtrap } else { on_preempt_signal };
        // SAFETY: all zeros is a valid sigaction.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a live action to be written.
        if unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } != 0 {
            continue;
        }
        // SAFETY: a live set.
        let held = |signal| unsafe { libc::sigismember(&now.sa_mask, signal) } == 1;
        let fits = IGNORED_BY_DEFAULT
            .into_iter()
            .all(|signal| held(signal) != (open >> (signal - 1) & 1 == 1));
        if now.sa_sigaction == handler as *const () as usize && !fits {
            // SAFETY: a live action; the same handler.
            unsafe { libc::sigaction(signal, &action(handler, open), std::ptr::null_mut()) };
        }
    }
}

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

/// Whether the handler of SIGTRAP is (still) ours. About 100 ns.
pub fn is_installed() -> bool {
    handles(libc::SIGTRAP, on_sigtrap)
}

/// Whether the handler of the preemption signal is (still) ours.
pub(crate) fn is_signal_installed(signal: i32) -> bool {
    handles(signal, on_preempt_signal)
}

fn handles(signal: i32, handler: Handler) -> bool {
    // SAFETY: all zeros is a valid sigaction.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a live action to be written.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    asked && now.sa_sigaction == handler as *const () as usize
}

/// See [`interrupted::restarts_call`].
fn restarts_call(context: *const libc::ucontext_t) -> bool {
    // SAFETY: the kernel's context of the running handler.
    unsafe { interrupted::restarts_call(context) }
}

/// A signal waits whose handler lets no call be made again, and the call that was interrupted is
/// about to be: EINTR, as if ours were not there.
///
/// # Safety
/// In one of our handlers, with the context that the kernel gave it.
unsafe fn fail_restarted_call(context: *mut libc::ucontext_t) {
    // SAFETY: the caller's promise. A call to be restarted was just made: one that crosses a page
    // boundary counts as none.
    if !unsafe { interrupted::is_at_call(context) } {
        return;
    }
    // SAFETY: all zeros is a valid set.
    let mut waiting: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a live set to be written.
    if unsafe { libc::sigpending(&mut waiting) } != 0 {
        return;
    }
    // The lowest one is delivered first, and decides.
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: two live sets.
        let comes = unsafe {
            libc::sigismember(&waiting, signal) == 1
                && libc::sigismember(&(*context).uc_sigmask, signal) == 0
        };
        // SAFETY: all zeros is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a live action to be written.
        if !comes || unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } != 0 {
            continue;
        }
        if !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            if action.sa_flags & libc::SA_RESTART == 0 {
                // SAFETY: the kernel's context; the call was found above.
                unsafe { interrupted::fail_call(context) };
            }
            return;
        }
    }
}

/// # Safety
/// In a handler of `signal`, with what the kernel gave it.
unsafe fn chain_to_previous(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = &PREVIOUS[signal as usize];
    let (handler, flags) =
        (previous[0].load(Ordering::Relaxed), previous[1].load(Ordering::Relaxed));
    // What the kernel raises for an instruction (a breakpoint, a step) cannot be ignored: the
    // kernel thread could not go on.
    // SAFETY: the kernel's.
    let is_fault = unsafe { (*info).si_code } > libc::SI_USER;
    match handler {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL if IGNORED_BY_DEFAULT.contains(&signal) => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A breakpoint without a debugger: the process ends as it would without us, by the same
            // signal.
            // SAFETY: plain calls; the signal is delivered when the handler returns and
            // unblocks it.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        _ if flags & libc::SA_SIGINFO as usize != 0 => {
            // SAFETY: the application's handler, installed with SA_SIGINFO.
            let call: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            call(signal, info, context);
        }
        _ => {
            // SAFETY: the application's handler, installed without SA_SIGINFO.
            let call: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            call(signal);
        }
    }
}

#[cfg(test)]
mod tests;
