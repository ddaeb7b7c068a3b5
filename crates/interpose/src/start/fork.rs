//! fork(2): the locks of the runtime are held while the process is copied.
//!
//! Handlers of the program may wait as microprocesses, for an allocator's mutex for example, and
//! wake others. A holder of the runtime's locks may do neither. So the runtime's handlers are
//! registered before all others: pthread_atfork(3) calls those registered first last before the
//! fork, and first after it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_arch::tls;

use crate::lock::lot;
use crate::real::libc;
use crate::signal;
use crate::start::options;
use crate::start::phase::{self, Phase};

type Handler = Option<unsafe extern "C" fn()>;

/// Registers the runtime's handlers, unless they are registered. Called at the first registration
/// of the program, and at the latest when the runtime starts, which tries again if memory was
/// short. `Tls::build` reports if it still is.
pub(super) fn register() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    // The heap's lock is the last to be taken, so its handlers come first.
    if !IS_DONE.swap(true, Ordering::AcqRel)
        // SAFETY: the functions are static.
        && unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) } != 0
    {
        IS_DONE.store(false, Ordering::Release);
    }
    let _ = tls::hold_locks_over_forks();
}

/// What pthread_atfork(3) calls, whose code is in each program and library.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose___register_atfork(
    before: Handler,
    after: Handler,
    in_child: Handler,
    library: *mut c_void,
) -> c_int {
    register();
    // SAFETY: the caller's promise.
    unsafe { libc::__register_atfork(before, after, in_child, library) }
}

unsafe extern "C" fn before_fork() {
    if let Some(heap) = options::heap() {
        (heap.hold)();
    }
}

unsafe extern "C" fn after_fork() {
    if let Some(heap) = options::heap() {
        (heap.release)();
    }
}

/// A child of fork(2) has one thread, which is a kernel thread, and no runtime. If its parent had
/// none either, the child may start one.
unsafe extern "C" fn in_child() {
    if let Some(heap) = options::heap() {
        (heap.release)();
    }
    if phase::get() != Phase::NotYet {
        lot::forget();
        signal::process::forget();
        phase::set(Phase::Off);
    }
}
