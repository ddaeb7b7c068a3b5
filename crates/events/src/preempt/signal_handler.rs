//! Installs signal handlers beside those of the application, and makes interrupted system calls
//! fail.
//!
//! The handlers themselves belong to a higher room (`pool::trap`), which passes them to
//! [`install`].

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use kumihimo_arch::{cpu, interrupted, kernel};

/// Signals are numbered 1 to 64.
const SIGNALS: usize = 65;

/// The application's previous action for each signal, as handler and flags. It receives the signals
/// that are not ours.
static PREVIOUS: [[AtomicUsize; 2]; SIGNALS] =
    [const { [AtomicUsize::new(libc::SIG_DFL), AtomicUsize::new(0)] }; SIGNALS];

/// The address of our handler for each signal; 0: none is installed.
static OURS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

/// The handlers that [`crate::preempt`] installs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handlers {
    /// For SIGTRAP, from a perf clock or an event source.
    pub(crate) trap: Handler,
    /// For the preemption signal.
    pub(crate) signal: Handler,
}

pub(crate) type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

static INSTALLED: Mutex<u64> = Mutex::new(0);

/// Installs `handler` for `signal`, once in a process. An earlier handler of the application
/// receives the signals that are not ours.
///
/// # Errors
/// Those of sigaction(2).
pub(crate) fn install(signal: i32, handler: Handler) -> io::Result<()> {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed >> (signal - 1) & 1 == 1 {
        return Ok(());
    }
    // The first call reads the settings, which allocates: a handler must not be the first to call.
    let _ = cpu::gs_base();
    let action = action(handler as *const () as usize, discarded_signals());
    // Before sigaction: a thread that finds this handler installed must recognise it as ours.
    OURS[signal as usize].store(handler as *const () as usize, Ordering::Relaxed);
    // SAFETY: all zeros is a valid sigaction.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: two live actions; the handler is async-signal-safe.
    if unsafe { kernel::sigaction(signal, &action, &mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let place = &PREVIOUS[signal as usize];
    place[0].store(previous.sa_sigaction, Ordering::Relaxed);
    place[1].store(previous.sa_flags as usize, Ordering::Relaxed);
    *installed |= 1 << (signal - 1);
    // The kernel no longer discards this signal, so our other handlers must block it from now on.
    // Otherwise a sample request would interrupt such a handler instead of the code below it.
    update_masks(*installed, discarded_signals());
    Ok(())
}

/// Returns the action that calls `handler`. While the handler runs, all signals are blocked except
/// faults and the signals of `open` (bit n-1 is signal n).
fn action(handler: usize, open: u64) -> libc::sigaction {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // The handler runs on the alternate stack, since the microprocess's own may be nearly full.
    // SA_RESTART: for system calls that another signal interrupts at the same time.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: a live set. sigfillset leaves out the C library's two internal signals (nptl(7)):
    // set*id(2) waits until every kernel thread has handled one of them.
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    // A blocked fault would end the process without a report. For the signals of `open`, see
    // `discarded_signals`.
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];
    let open = IGNORED_BY_DEFAULT.into_iter().filter(|signal| open >> (signal - 1) & 1 == 1);
    for signal in faults.into_iter().chain(open) {
        // SAFETY: a live set.
        unsafe { libc::sigdelset(&mut action.sa_mask, signal) };
    }
    action
}

/// Returns the signals that have no handler and no effect, as a mask.
///
/// The kernel discards such a signal when it is sent, unless the receiving thread blocks it
/// (kernel/signal.c, `sig_ignored`). If it is blocked, the kernel wakes another thread to take it.
/// The system call of that thread ends with EINTR, for no cause that the program could find
/// (observed with SIGCHLD).
fn discarded_signals() -> u64 {
    let is_dropped = |signal: i32| {
        // SAFETY: all zeros is a valid sigaction.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a live action to be written.
        let asked = unsafe { kernel::sigaction(signal, std::ptr::null(), &mut now) } == 0;
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

/// Updates the masks of our installed handlers: of the signals ignored by default, they block those
/// that now have a handler, and no others.
fn update_masks(installed: u64, open: u64) {
    for signal in (1..=64).filter(|signal| installed >> (signal - 1) & 1 == 1) {
        let handler = OURS[signal as usize].load(Ordering::Relaxed);
        // SAFETY: all zeros is a valid sigaction.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a live action to be written.
        if unsafe { kernel::sigaction(signal, std::ptr::null(), &mut now) } != 0 {
            continue;
        }
        // SAFETY: a live set.
        let held = |signal| unsafe { libc::sigismember(&now.sa_mask, signal) } == 1;
        let fits = IGNORED_BY_DEFAULT
            .into_iter()
            .all(|signal| held(signal) != (open >> (signal - 1) & 1 == 1));
        if now.sa_sigaction == handler && !fits {
            // SAFETY: a live action; the same handler.
            unsafe { kernel::sigaction(signal, &action(handler, open), std::ptr::null_mut()) };
        }
    }
}

/// Returns whether the handler of `signal` is (still) ours. Takes about 100 ns.
pub(crate) fn is_installed(signal: i32) -> bool {
    let ours = OURS[signal as usize].load(Ordering::Relaxed);
    // SAFETY: all zeros is a valid sigaction.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a live action to be written.
    let asked = unsafe { kernel::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    asked && ours != 0 && now.sa_sigaction == ours
}

/// Returns whether the kernel is about to restart the interrupted system call: see
/// [`interrupted::restarts_call`].
pub(crate) fn restarts_call(context: *const libc::ucontext_t) -> bool {
    // SAFETY: the kernel's context of the running handler.
    unsafe { interrupted::restarts_call(context) }
}

/// Makes the interrupted system call fail with EINTR if the kernel is about to restart it although
/// a pending signal has a handler without SA_RESTART. The call then ends as it would without our
/// handler.
///
/// # Safety
/// Called in one of our handlers, with the context that the kernel passed to it.
pub(crate) unsafe fn fail_restarted_call(context: *mut libc::ucontext_t) {
    // SAFETY: the caller guarantees the context. The instruction at a call that is about to be
    // restarted is readable. A call instruction that crosses a page boundary is not recognised.
    if !unsafe { interrupted::is_at_call(context) } {
        return;
    }
    // SAFETY: all zeros is a valid set.
    let mut waiting: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a live set to be written.
    if unsafe { kernel::sigpending(&mut waiting) } != 0 {
        return;
    }
    // The kernel delivers the lowest signal first, and the flags of its handler decide.
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: two live sets.
        let comes = unsafe {
            libc::sigismember(&waiting, signal) == 1
                && libc::sigismember(&(*context).uc_sigmask, signal) == 0
        };
        // SAFETY: all zeros is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a live action to be written.
        let mut ask = || unsafe { kernel::sigaction(signal, std::ptr::null(), &mut action) };
        if !comes || ask() != 0 {
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

/// Passes a signal that is not ours to the application's previous action.
///
/// # Safety
/// Called in a handler of `signal`, with the arguments that the kernel passed to it.
pub(crate) unsafe fn chain_to_previous(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let previous = &PREVIOUS[signal as usize];
    let (handler, flags) =
        (previous[0].load(Ordering::Relaxed), previous[1].load(Ordering::Relaxed));
    // A signal that the kernel raises for an instruction (a breakpoint, a step) cannot be ignored:
    // the kernel thread could not continue.
    // SAFETY: `info` is the kernel's.
    let is_fault = unsafe { (*info).si_code } > libc::SI_USER;
    match handler {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL if IGNORED_BY_DEFAULT.contains(&signal) => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A breakpoint without a debugger: the process ends by the same signal as it would
            // without our handler.
            // The signal is delivered when the handler returns and unblocks it.
            kernel::reset_action(signal);
            kernel::raise(signal);
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
