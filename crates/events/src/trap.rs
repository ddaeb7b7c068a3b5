//! *Unblocked*: SIGTRAP on the way back from a sleep, before the interrupted call returns.
//!
//! perf_event_open(2), `sigtrap`: the kernel sends the signal by task work, on the kernel thread's way to user mode. Nothing that
//! waits in the kernel is interrupted by that, so no call ends early.

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use kumihimo_arch::x86_64;

use crate::bpf::SIG_DATA;
use crate::thread::KernelThread;

/// Where the record that GS points to on a kernel thread of the pool has the address of its [`KernelThread`]: the user scheduler's promise.
pub const GS_THREAD: usize = 16;

/// siginfo_t's `si_code` for a perf event (asm-generic/siginfo.h), which libc has no name for.
const TRAP_PERF: i32 = 6;
/// Offset of `si_perf_data` in siginfo_t, after `si_addr` (asm-generic/siginfo.h, 64 bits).
const PERF_DATA: usize = 24;

/// What the application had installed for SIGTRAP, for traps that are not ours.
static FORMER: [AtomicUsize; 2] = [AtomicUsize::new(libc::SIG_DFL), AtomicUsize::new(0)];

/// Installs the handler, once a process, beside an earlier one of the application's, which gets the traps that are not ours.
///
/// # Errors
/// What sigaction(2) says.
pub fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = trapped as *const () as usize;
    // On the alternate stack: the microprocess's own may be nearly full. SA_RESTART for calls that another signal interrupts meanwhile.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: zeroed like `action`.
    let mut former: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: two live actions; the handler is async-signal-safe.
    if unsafe { libc::sigaction(libc::SIGTRAP, &action, &mut former) } != 0 {
        return Err(io::Error::last_os_error());
    }
    FORMER[0].store(former.sa_sigaction, Ordering::Relaxed);
    FORMER[1].store(former.sa_flags as usize, Ordering::Relaxed);
    *installed = true;
    Ok(())
}

extern "C" fn trapped(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: this kernel thread's errno, or that of the microprocess on it: the interrupted code may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's siginfo_t, 128 bytes.
    let ours = unsafe { (*info).si_code == TRAP_PERF && info.byte_add(PERF_DATA).cast::<u64>().read() == SIG_DATA };
    if ours {
        // SAFETY: our perf events exist only on kernel threads of the pool, between `attach` and `detach`, where GS is set and its record
        // has the address there; the kernel thread is the one that runs here.
        let thread = unsafe { &*x86_64::gs_word::<GS_THREAD>().cast::<KernelThread>() };
        if let Some(scheduler) = thread.scheduler() {
            scheduler.unblocked();
        }
    } else {
        // SAFETY: as the kernel called us.
        unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: as above; a handler returns on the kernel thread where it began.
    unsafe { *libc::__errno_location() = errno };
}

/// # Safety
/// In a handler of SIGTRAP, with what the kernel gave it.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let (handler, flags) = (FORMER[0].load(Ordering::Relaxed), FORMER[1].load(Ordering::Relaxed));
    match handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // A breakpoint without a debugger: the process ends as it would without us, by the same signal.
            // SAFETY: plain calls; the signal is delivered when the handler returns and unblocks it.
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
