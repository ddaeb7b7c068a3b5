//! The functions that install handlers: sigaction(2), signal(2) and their like.
//!
//! The kernel gets [`entry`](crate::signal::entry) in the place of each handler, with its flags and
//! its mask.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::sighandler_t;

use crate::failed;
use crate::real::libc;
use crate::signal::action::{Action, PLACES, is_handler, kernels, of};
use crate::signal::entry::entry;
use crate::signal::section;
use crate::signal::set::{bit, is_signal};
use crate::start::phase;

/// Whether a thread of the program has ever had an alternate stack; sigaltstack(2).
static HAS_STACKS: AtomicBool = AtomicBool::new(false);

/// Whether a thread changes actions. It is in a section, so no handler waits for it.
static IS_CHANGING: AtomicBool = AtomicBool::new(false);

/// Runs `f` while no other thread changes actions.
fn changing<R>(f: impl FnOnce() -> R) -> R {
    section::within(|| {
        while IS_CHANGING.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        let done = f();
        IS_CHANGING.store(false, Ordering::Release);
        done
    })
}

/// What the kernel gets in its place. Without an alternate stack in the program, SA_ONSTACK has
/// no effect; a kernel thread of the runtime has one, on which no handler may wait. SA_RESETHAND is
/// for [`entry`]: a kick that is void must not reset the action.
fn for_kernel(action: Action, signal: c_int) -> libc::sigaction {
    let sa_sigaction = entry as *const () as usize;
    // An overflow of a stack is told on another one.
    let is_of_stack = matches!(signal, libc::SIGSEGV | libc::SIGBUS);
    let has_stacks = is_of_stack || HAS_STACKS.load(Ordering::SeqCst);
    let none = if has_stacks { 0 } else { libc::SA_ONSTACK };
    let sa_flags = (action.flags | libc::SA_SIGINFO) & !none & !libc::SA_RESETHAND;
    libc::sigaction { sa_sigaction, sa_flags, ..action.as_given() }
}

fn is_entry(action: &libc::sigaction) -> bool {
    action.sa_sigaction == entry as *const () as usize
}

/// Notes that a thread has an alternate stack: handlers that ask for it run there from now on.
pub(super) fn note_stack() {
    changing(|| {
        // In here: another thread that was first has changed all actions by now.
        if HAS_STACKS.swap(true, Ordering::SeqCst) {
            return;
        }
        for signal in (1..=64).filter(|signal| !matches!(signal, 32 | 33)) {
            let given = of(signal);
            if given.flags & libc::SA_ONSTACK != 0
                && kernels(signal).is_some_and(|now| is_entry(&now))
            {
                // SAFETY: a live action.
                unsafe {
                    libc::sigaction(signal, &for_kernel(given, signal), std::ptr::null_mut())
                };
            }
        }
    });
}

/// Takes over the handlers that the program has installed so far. The runtime is about to start.
pub(crate) fn take_over() {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: a live structure to be written; zeroes are valid.
    unsafe {
        if libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) == 0
            && stack.assume_init().ss_flags & libc::SS_DISABLE == 0
        {
            HAS_STACKS.store(true, Ordering::SeqCst);
        }
    }
    for signal in (1..=64).filter(|signal| !matches!(signal, 32 | 33)) {
        let Some(now) = kernels(signal) else { continue };
        if is_handler(now.sa_sigaction) && !is_entry(&now) {
            let action = Action::of(&now);
            PLACES[signal as usize].store(action);
            // SAFETY: a live action.
            unsafe { libc::sigaction(signal, &for_kernel(action, signal), std::ptr::null_mut()) };
        }
    }
}

/// Replaces sigaction(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    if !phase::has_started() || !is_signal(signal) {
        // SAFETY: the caller's promise.
        return unsafe { libc::sigaction(signal, new, before) };
    }
    // SAFETY: the caller's promise.
    let new = unsafe { new.as_ref() };
    changing(|| {
        let mut was = MaybeUninit::<libc::sigaction>::zeroed();
        let place = &PLACES[signal as usize];
        let given = place.load();
        if let Some(new) = new.filter(|new| is_handler(new.sa_sigaction)) {
            // Before the kernel may call it.
            place.store(Action::of(new));
        }
        let wanted = new.map(|new| match is_handler(new.sa_sigaction) {
            true => for_kernel(Action::of(new), signal),
            false => *new,
        });
        let wanted = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: live structures, or null.
        let done = unsafe { libc::sigaction(signal, wanted, was.as_mut_ptr()) };
        if done != 0 {
            place.store(given);
            return done;
        }
        // SAFETY: written by the call, or zeroes.
        let was = unsafe { was.assume_init() };
        // SAFETY: the caller's promise.
        if let Some(before) = unsafe { before.as_mut() } {
            *before = if is_entry(&was) { given.as_given() } else { was };
        }
        0
    })
}

/// Installs a handler with these flags and this mask. Returns the one before, or `SIG_ERR`.
pub(super) fn install(
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    mask: u64,
) -> sighandler_t {
    exchange(signal, Some(&Action { handler, flags, mask }.as_given()))
}

/// Returns the handler of `signal`, or `SIG_ERR`.
pub(super) fn installed(signal: c_int) -> sighandler_t {
    exchange(signal, None)
}

fn exchange(signal: c_int, new: Option<&libc::sigaction>) -> sighandler_t {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: live structures, or null.
    unsafe {
        match kumi_interpose_sigaction(signal, new, before.as_mut_ptr()) {
            0 => before.assume_init().sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// Signals whose handlers of signal(2) interrupt system calls: siginterrupt(3).
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// Replaces signal(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if !phase::has_started() || !is_signal(signal) {
        // SAFETY: the caller's promise.
        return unsafe { libc::signal(signal, handler) };
    }
    let interrupts = INTERRUPTS.load(Ordering::Relaxed) & bit(signal) != 0;
    install(signal, handler, if interrupts { 0 } else { libc::SA_RESTART }, bit(signal))
}

/// Replaces the System V variant: the handler serves once, and does not block its signal.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose___sysv_signal(
    signal: c_int,
    handler: sighandler_t,
) -> sighandler_t {
    if !is_signal(signal) {
        failed(libc::EINVAL);
        return libc::SIG_ERR;
    }
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sysv_signal(
    signal: c_int,
    handler: sighandler_t,
) -> sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose___sysv_signal(signal, handler) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_signal(signal, handler) }
}

/// Replaces siginterrupt(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    if !is_signal(signal) {
        return failed(libc::EINVAL);
    }
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: live structures.
    unsafe {
        if kumi_interpose_sigaction(signal, std::ptr::null(), now.as_mut_ptr()) != 0 {
            return -1;
        }
        let mut now = now.assume_init();
        if interrupts != 0 {
            INTERRUPTS.fetch_or(bit(signal), Ordering::Relaxed);
            now.sa_flags &= !libc::SA_RESTART;
        } else {
            INTERRUPTS.fetch_and(!bit(signal), Ordering::Relaxed);
            now.sa_flags |= libc::SA_RESTART;
        }
        kumi_interpose_sigaction(signal, &now, std::ptr::null_mut())
    }
}
