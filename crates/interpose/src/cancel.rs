//! Cancellation: pthread_cancel(3).
//!
//! The C library keeps the request and the state in the block of a thread, and acts on them in
//! `pthread_testcancel`, which unwinds the stack. What it cannot do is end the wait of a
//! microprocess, so this module interrupts it; the wait returns, and the function that the program
//! has called asks the C library.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kumihimo_arch::system_call;
use kumihimo_runtime::signals::{call_back, interrupts_program, is_on_runtimes_thread};
use libc::pthread_t;

use crate::record;
use crate::signal::{own, send};

/// The cancellation of a thread.
pub(crate) struct Cancel {
    /// Requested, and not acted upon.
    is_requested: AtomicBool,
    is_disabled: Cell<bool>,
    is_asynchronous: AtomicBool,
}

impl Cancel {
    pub(crate) const fn new() -> Cancel {
        Cancel {
            is_requested: AtomicBool::new(false),
            is_disabled: Cell::new(false),
            is_asynchronous: AtomicBool::new(false),
        }
    }

    /// Whether the next cancellation point of the caller ends it.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst) && !self.is_disabled.get()
    }

    /// The thread ends: no wait of its handlers is interrupted.
    pub(crate) fn is_over(&self) {
        self.is_requested.store(false, Ordering::SeqCst);
    }
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_cancel(thread: pthread_t) -> c_int;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// A cancellation point. Unwinds the caller's stack if the thread was cancelled.
#[inline]
pub(crate) extern "C-unwind" fn point() {
    if own().cancel.is_due() {
        // SAFETY: takes nothing. No frame of this library above the program's has anything to drop.
        unsafe { pthread_testcancel() };
        // It was not to be: the thread ends already.
        own().cancel.is_over();
    }
}

/// Makes a call that is a cancellation point, and waits at most once. A call that has succeeded is
/// not undone. The frames of `f` are gone when the stack is unwound.
#[inline]
pub(crate) fn around<R: Returned>(f: impl FnOnce() -> R) -> R {
    point();
    let done = f();
    if done.has_failed() {
        point();
    }
    done
}

/// What a function of the C library returns: -1, and an error number in errno, if it has failed.
pub(crate) trait Returned {
    fn has_failed(&self) -> bool;
}

impl Returned for c_int {
    fn has_failed(&self) -> bool {
        *self == -1
    }
}

impl Returned for libc::ssize_t {
    fn has_failed(&self) -> bool {
        *self == -1
    }
}

/// <pthread.h>.
const DISABLE: c_int = 1;
const ASYNCHRONOUS: c_int = 1;

/// Replaces pthread_setcancelstate(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_setcancelstate(
    state: c_int,
    before: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { pthread_setcancelstate(state, before) };
    if done == 0 {
        own().cancel.is_disabled.set(state == DISABLE);
    }
    done
}

/// Replaces pthread_setcanceltype(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_setcanceltype(
    kind: c_int,
    before: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { pthread_setcanceltype(kind, before) };
    if done == 0 {
        own().cancel.is_asynchronous.store(kind == ASYNCHRONOUS, Ordering::SeqCst);
    }
    done
}

/// Replaces pthread_cancel(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the caller's promise.
    let Some(record) = (unsafe { record::created(thread) }) else {
        // SAFETY: as above.
        return unsafe { pthread_cancel(thread) };
    };
    let signals = &record.signals;
    if !signals.is_alive() {
        return 0;
    }
    signals.cancel.is_requested.store(true, Ordering::SeqCst);
    // Marks the block. It may also signal the thread by its number, which the kernel does not know.
    // SAFETY: as above.
    unsafe { pthread_cancel(thread) };
    install();
    if std::ptr::eq(signals, own()) {
        return 0;
    }
    crate::signal::section::within(|| {
        /// Looks at a thread that is to end wherever it is, and was in the runtime.
        const ATTEMPTS: u32 = 1000;
        for _ in 0..ATTEMPTS {
            send::nudge(signals, CANCEL);
            let is_asynchronous = signals.cancel.is_asynchronous.load(Ordering::SeqCst);
            if !is_asynchronous || !signals.cancel.is_requested.load(Ordering::SeqCst) {
                break;
            }
            kumihimo_runtime::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    0
}

/// The C library's signal for cancellation; nptl(7).
const CANCEL: c_int = 32;

/// The kernel's struct sigaction. The C library's sigaction(2) refuses this signal.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The C library's handler.
static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

/// Puts [`on_cancel`] before the C library's handler, which its first pthread_cancel has installed.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut action = KernelAction::default();
        let at = (&raw mut action).expose_provenance();
        // SAFETY: a live structure of the kernel.
        unsafe { system_call(libc::SYS_rt_sigaction, [CANCEL as usize, 0, at, 8, 0, 0]) };
        ORIGINAL.store(action.handler, Ordering::SeqCst);
        // The C library's restorer stays.
        let ours = KernelAction { handler: on_cancel as *const () as usize, ..action };
        let at = (&raw const ours).expose_provenance();
        // SAFETY: as above.
        unsafe { system_call(libc::SYS_rt_sigaction, [CANCEL as usize, at, 0, 8, 0, 0]) };
    });
}

type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

unsafe extern "C-unwind" fn on_cancel(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel's.
    if !send::is_kick(unsafe { &*info }) {
        // SAFETY: as this function.
        return unsafe { call_original(signal, info, context) };
    }
    let own = own();
    let is_program = !is_on_runtimes_thread() || interrupts_program();
    if !is_program || own.is_in_section() {
        call_back();
    } else if own.cancel.is_due() && own.cancel.is_asynchronous.load(Ordering::SeqCst) {
        // The C library's handler ends the thread here, if it finds its own signal.
        let mut info = send::Sent::new(signal, libc::SI_TKILL, 0);
        // SAFETY: as this function.
        unsafe { call_original(signal, &raw mut info, context) };
    }
}

unsafe fn call_original(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let original = ORIGINAL.load(Ordering::SeqCst);
    if original > libc::SIG_IGN {
        // SAFETY: the C library's handler.
        unsafe { std::mem::transmute::<usize, Handler>(original)(signal, info, context) };
    }
}
