//! Signals that came where no handler may run, for the kernel thread that listens.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::signal::kick::{kick, queue_to_process};
use crate::signal::queue::{Info, Queue};

/// The kernel thread that listens; 0 before it does.
pub(super) static LISTENER: AtomicU32 = AtomicU32::new(0);
/// Signals that a handler could not handle where it was called. The listener is the owner.
pub(super) static ASIDE: Queue = Queue::new();

/// A signal of the C library that no program sends: it has the listener look again.
pub(super) const LOOK_AGAIN: c_int = 32;

/// Has the listener look again.
pub(super) fn look_again() {
    let listener = LISTENER.load(Ordering::SeqCst);
    if listener != 0 {
        kick(listener, LOOK_AGAIN);
    }
}

/// Puts a signal aside that came where no handler may run. Async-signal-safe.
pub(super) fn put(signal: c_int, info: &Info) {
    if LISTENER.load(Ordering::SeqCst) == 0 {
        // The kernel finds another thread, or this one later.
        queue_to_process(info);
        return;
    }
    ASIDE.add(signal, info);
    look_again();
}
