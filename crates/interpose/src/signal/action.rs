//! The program's handlers: sigaction(2), signal(2) and their like.
//!
//! Once the runtime has started, the kernel has [`entry`](crate::signal::entry) in the place of
//! each handler, with the handler's flags and mask. What the program installed is here.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::{sighandler_t, sigset_t};

use crate::signal::entry::entry;
use crate::signal::queue::Info;
use crate::signal::{bit, is_signal, section};
use crate::{failed, phase};

/// A handler of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    handler: usize,
    flags: c_int,
    mask: u64,
}

/// The program's action for one signal. A writer makes `version` odd meanwhile.
struct Place {
    version: AtomicU64,
    handler: AtomicUsize,
    flags: AtomicU32,
    mask: AtomicU64,
}

static PLACES: [Place; 65] = [const {
    Place {
        version: AtomicU64::new(0),
        handler: AtomicUsize::new(0),
        flags: AtomicU32::new(0),
        mask: AtomicU64::new(0),
    }
}; 65];

/// Whether a thread of the program has ever had an alternate stack; sigaltstack(2).
static HAS_STACKS: AtomicBool = AtomicBool::new(false);

/// Whether a thread changes actions. It is in a section, so no handler waits for it.
static IS_CHANGING: AtomicBool = AtomicBool::new(false);

impl Place {
    fn load(&self) -> Action {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let action = Action {
                handler: self.handler.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed).cast_signed(),
                mask: self.mask.load(Ordering::Relaxed),
            };
            std::sync::atomic::fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return action;
            }
            std::hint::spin_loop();
        }
    }

    fn store(&self, action: Action) {
        self.version.fetch_add(1, Ordering::AcqRel);
        std::sync::atomic::fence(Ordering::Release);
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags.cast_unsigned(), Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }
}

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

fn word(set: &sigset_t) -> u64 {
    // SAFETY: a set begins with the kernel's word.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

fn set_of(mask: u64) -> sigset_t {
    // SAFETY: all zeroes are a valid set, which begins with the kernel's word.
    unsafe {
        let mut set = MaybeUninit::<sigset_t>::zeroed().assume_init();
        (&raw mut set).cast::<u64>().write(mask);
        set
    }
}

/// A handler, and not `SIG_DFL` or `SIG_IGN`.
fn is_handler(handler: sighandler_t) -> bool {
    handler > libc::SIG_IGN
}

type Handler = unsafe extern "C-unwind" fn(c_int, *mut Info, *mut libc::ucontext_t);

impl Action {
    fn of(action: &libc::sigaction) -> Action {
        Action { handler: action.sa_sigaction, flags: action.sa_flags, mask: word(&action.sa_mask) }
    }

    fn as_given(self) -> libc::sigaction {
        libc::sigaction {
            sa_sigaction: self.handler,
            sa_mask: set_of(self.mask),
            sa_flags: self.flags,
            sa_restorer: None,
        }
    }

    /// What the kernel gets in its place. Without an alternate stack in the program, SA_ONSTACK has
    /// no effect; a kernel thread of the runtime has one, on which no handler may wait.
    fn for_kernel(self, signal: c_int) -> libc::sigaction {
        let sa_sigaction = entry as *const () as usize;
        // An overflow of a stack is told on another one.
        let is_of_stack = matches!(signal, libc::SIGSEGV | libc::SIGBUS);
        let has_stacks = is_of_stack || HAS_STACKS.load(Ordering::SeqCst);
        let none = if has_stacks { 0 } else { libc::SA_ONSTACK };
        let sa_flags = (self.flags | libc::SA_SIGINFO) & !none;
        libc::sigaction { sa_sigaction, sa_flags, ..self.as_given() }
    }

    pub(super) fn restarts(self) -> bool {
        self.flags & libc::SA_RESTART != 0
    }

    pub(super) fn is_once(self) -> bool {
        self.flags & libc::SA_RESETHAND != 0
    }

    /// What is blocked while the handler runs.
    pub(super) fn mask_during(self, signal: c_int) -> u64 {
        let own = if self.flags & libc::SA_NODEFER == 0 { bit(signal) } else { 0 };
        (self.mask | own) & kumihimo_arch::signal_mask::ALL
    }

    /// Calls the handler, if it is one.
    ///
    /// # Safety
    /// In a signal handler, with what the kernel passed to it.
    pub(super) unsafe fn call(
        self,
        signal: c_int,
        info: *mut Info,
        context: *mut libc::ucontext_t,
    ) {
        if is_handler(self.handler) {
            // A handler of one argument does not look at the others, which are in registers.
            // SAFETY: the program has installed it for this.
            unsafe { std::mem::transmute::<usize, Handler>(self.handler)(signal, info, context) };
        }
    }
}

/// The program's action for `signal`.
pub(super) fn of(signal: c_int) -> Action {
    PLACES[signal as usize].load()
}

/// # Safety
/// As [`Action::call`].
pub(super) unsafe fn call(signal: c_int, info: *mut Info, context: *mut libc::ucontext_t) {
    // SAFETY: the caller's promise.
    unsafe { of(signal).call(signal, info, context) };
}

/// Notes that the kernel has reset the action (`SA_RESETHAND`).
pub(super) fn reset(signal: c_int) {
    PLACES[signal as usize].handler.store(libc::SIG_DFL, Ordering::Relaxed);
}

/// What happens with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    Handled,
    Ignored,
    /// The process ends or stops.
    Default,
}

pub(super) fn disposition(signal: c_int) -> Disposition {
    let Some(now) = kernels(signal) else { return Disposition::Default };
    match now.sa_sigaction {
        libc::SIG_IGN => Disposition::Ignored,
        libc::SIG_DFL => match signal {
            libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH => Disposition::Ignored,
            _ => Disposition::Default,
        },
        _ => Disposition::Handled,
    }
}

/// The kernel's action.
fn kernels(signal: c_int) -> Option<libc::sigaction> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a live structure to be written.
    let done = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: written, or zeroes, which are valid.
    (done == 0).then(|| unsafe { now.assume_init() })
}

fn is_entry(action: &libc::sigaction) -> bool {
    action.sa_sigaction == entry as *const () as usize
}

/// Notes that a thread has an alternate stack: handlers that ask for it run there from now on.
pub(super) fn note_stack() {
    if HAS_STACKS.swap(true, Ordering::SeqCst) {
        return;
    }
    changing(|| {
        for signal in (1..=64).filter(|signal| !matches!(signal, 32 | 33)) {
            let given = of(signal);
            if given.flags & libc::SA_ONSTACK != 0
                && kernels(signal).is_some_and(|now| is_entry(&now))
            {
                // SAFETY: a live action.
                unsafe { libc::sigaction(signal, &given.for_kernel(signal), std::ptr::null_mut()) };
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
            unsafe { libc::sigaction(signal, &action.for_kernel(signal), std::ptr::null_mut()) };
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
            true => Action::of(new).for_kernel(signal),
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
fn install(signal: c_int, handler: sighandler_t, flags: c_int, mask: u64) -> sighandler_t {
    let new = Action { handler, flags, mask }.as_given();
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: live structures.
    unsafe {
        match kumi_interpose_sigaction(signal, &new, before.as_mut_ptr()) {
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
