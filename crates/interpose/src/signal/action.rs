//! The program's handlers, as it has installed them.
//!
//! Once the runtime has started, the kernel has [`entry`](crate::signal::entry) in the place of
//! each handler, with the handler's flags and mask. What the program installed is here.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::{sighandler_t, sigset_t};

use crate::real::libc;
use crate::signal::mask;
use crate::signal::queue::Info;
use crate::signal::set::bit;

/// A handler of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    pub(super) handler: usize,
    pub(super) flags: c_int,
    pub(super) mask: u64,
}

/// The program's action for one signal. A writer makes `version` odd meanwhile.
pub(super) struct Place {
    version: AtomicU64,
    handler: AtomicUsize,
    flags: AtomicU32,
    mask: AtomicU64,
}

pub(super) static PLACES: [Place; 65] = [const {
    Place {
        version: AtomicU64::new(0),
        handler: AtomicUsize::new(0),
        flags: AtomicU32::new(0),
        mask: AtomicU64::new(0),
    }
}; 65];

impl Place {
    pub(super) fn load(&self) -> Action {
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

    pub(super) fn store(&self, action: Action) {
        self.version.fetch_add(1, Ordering::AcqRel);
        std::sync::atomic::fence(Ordering::Release);
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags.cast_unsigned(), Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }
}

fn word(set: &sigset_t) -> u64 {
    // SAFETY: a set begins with the kernel's word.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

/// A handler, and not `SIG_DFL` or `SIG_IGN`.
pub(super) fn is_handler(handler: sighandler_t) -> bool {
    handler > libc::SIG_IGN
}

type Handler = unsafe extern "C-unwind" fn(c_int, *mut Info, *mut libc::ucontext_t);

impl Action {
    pub(super) fn of(action: &libc::sigaction) -> Action {
        Action { handler: action.sa_sigaction, flags: action.sa_flags, mask: word(&action.sa_mask) }
    }

    pub(super) fn as_given(self) -> libc::sigaction {
        libc::sigaction {
            sa_sigaction: self.handler,
            sa_mask: mask::set_of(self.mask),
            sa_flags: self.flags,
            sa_restorer: None,
        }
    }

    pub(super) fn restarts(self) -> bool {
        self.flags & libc::SA_RESTART != 0
    }

    /// What is blocked while the handler runs.
    pub(super) fn mask_during(self, signal: c_int) -> u64 {
        let own = if self.flags & libc::SA_NODEFER == 0 { bit(signal) } else { 0 };
        (self.mask | own) & kumihimo_arch::signal_mask::ALL
    }

    /// Calls the handler, if it is one. One that serves once is reset before, as by the kernel.
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
            if self.flags & libc::SA_RESETHAND != 0 {
                let reset = Action { handler: libc::SIG_DFL, ..self };
                // SAFETY: a live action; async-signal-safe.
                unsafe { libc::sigaction(signal, &reset.as_given(), std::ptr::null_mut()) };
            }
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
pub(super) fn kernels(signal: c_int) -> Option<libc::sigaction> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a live structure to be written.
    let done = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: written, or zeroes, which are valid.
    (done == 0).then(|| unsafe { now.assume_init() })
}
