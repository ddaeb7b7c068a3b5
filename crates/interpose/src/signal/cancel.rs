//! Cancellation: pthread_cancel(3).
//!
//! The C library keeps a request in the block of the thread, and acts on it in each of its
//! functions that is a cancellation point: also where the runtime calls one, in a wait of the
//! microprocess. So a request for a microprocess is kept here. It interrupts the wait; the wait
//! returns, and the function that the program has called has the C library cancel the caller.

use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use kumihimo_arch::system_call;
use kumihimo_runtime::signals::call_back;
use libc::pthread_t;

use crate::real::libc;
use crate::real::libc::{
    pthread_cancel, pthread_setcancelstate, pthread_setcanceltype, pthread_testcancel,
};
use crate::signal::kick::is_kick;
use crate::signal::thread::Signals;
use crate::signal::{entry, section, send};
use crate::thread::record::{self, RECORD, own_signals};

/// A cancellation point. Unwinds the caller's stack if the thread was cancelled.
#[inline]
pub(crate) extern "C-unwind" fn point() {
    if own_signals().cancel.is_due() {
        cancel_self();
    }
}

#[cold]
extern "C-unwind" fn cancel_self() {
    own_signals().cancel.is_over();
    // SAFETY: the caller's own block. No frame of this library above the program's has anything to
    // drop. It returns if the thread ends already.
    unsafe {
        pthread_cancel(libc::pthread_self());
        pthread_testcancel();
    }
}

/// Replaces pthread_testcancel(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_testcancel() {
    point();
    // SAFETY: takes nothing.
    unsafe { pthread_testcancel() };
}

/// Makes a call that is a cancellation point. One that has failed may have been interrupted for a
/// cancellation; one that has succeeded is not undone. The frames of `f` are gone when the stack is
/// unwound.
#[inline]
pub(crate) fn around<R: PartialEq + From<i8>>(f: impl FnOnce() -> R) -> R {
    point();
    let done = f();
    if done == R::from(-1) {
        point();
    }
    done
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
        own_signals().cancel.is_disabled.set(state == DISABLE);
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
        own_signals().cancel.is_asynchronous.store(kind == ASYNCHRONOUS, Ordering::SeqCst);
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
    // One that has not begun is cancelled at its first cancellation point.
    if signals.has_ended() {
        return 0;
    }
    install();
    signals.cancel.is_requested.store(true, Ordering::SeqCst);
    if std::ptr::eq(signals, own_signals()) {
        if signals.cancel.is_asynchronous() {
            point();
        }
        return 0;
    }
    section::within(|| {
        /// Looks at a thread that is to end wherever it is, and was in the runtime.
        const ATTEMPTS: u32 = 1000;
        for _ in 0..ATTEMPTS {
            send::nudge(signals, CANCEL);
            let is_asynchronous = signals.cancel.is_asynchronous();
            if !is_asynchronous || !signals.cancel.is_requested.load(Ordering::SeqCst) {
                break;
            }
            kumihimo_runtime::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    0
}

/// Has another thread of this library look at what is due for it.
pub(crate) fn nudge(signals: &Signals) {
    install();
    section::within(|| send::nudge(signals, CANCEL));
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

/// Puts [`on_cancel`] before the C library's handler, which its first pthread_cancel installs.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        cancel_a_kernel_thread();
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

/// Has the C library install its handler.
fn cancel_a_kernel_thread() {
    extern "C" fn waits(_: *mut c_void) -> *mut c_void {
        loop {
            // SAFETY: an integer.
            unsafe { libc::sleep(1) };
        }
    }
    kumihimo_arch::signal_mask::while_blocked(|| {
        let (mut thread, null) = (0, std::ptr::null_mut());
        // SAFETY: live words; the thread uses nothing.
        unsafe {
            if libc::pthread_create(&raw mut thread, std::ptr::null(), waits, null) == 0 {
                pthread_cancel(thread);
                libc::pthread_join(thread, std::ptr::null_mut());
            }
        }
    });
}

type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

unsafe extern "C-unwind" fn on_cancel(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel's.
    if !is_kick(unsafe { &*info }) {
        // SAFETY: as this function.
        return unsafe { call_original(signal, info, context) };
    }
    let own = own_signals();
    // SAFETY: the kernel's context.
    let is_program = unsafe { entry::is_program(own, context.cast()) };
    if !is_program || own.is_in_section() {
        call_back();
        return;
    }
    RECORD.with(|record| record.scheduling.apply_due());
    if own.cancel.is_due() && own.cancel.is_asynchronous() {
        point();
    }
}

unsafe fn call_original(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let original = ORIGINAL.load(Ordering::SeqCst);
    if original > libc::SIG_IGN {
        // SAFETY: the C library's handler.
        unsafe { std::mem::transmute::<usize, Handler>(original)(signal, info, context) };
    }
}
