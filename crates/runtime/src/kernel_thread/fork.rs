//! fork(2) inside a microprocess.
//!
//! The child has one kernel thread, the one that forked, and on it one microprocess. There it is a
//! plain kernel thread from the first instruction on: `sync` and `net` block that thread, nothing
//! can be spawned, and the end of its closure ends the process.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::microprocess::foreign_thread;
use crate::scheduler::carrier::{KernelThread, Standing, set_standing, standing};

static RUNS: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static ON_MICROPROCESS: AtomicBool = AtomicBool::new(false);

/// Whether this process is the child of one that ran a runtime.
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    if RUNS.load(Ordering::Relaxed) {
        // On the caller's TLS block, which the child has a copy of.
        FORKED.store(true, Ordering::Relaxed);
        if standing() != Standing::Foreign {
            // SAFETY: not foreign: GS points to the copy of the record that the caller's kernel
            // thread has.
            unsafe { KernelThread::here() }.keep_to_no_core();
        }
        if standing() != Standing::Foreign || foreign_thread::forget() {
            ON_MICROPROCESS.store(true, Ordering::Relaxed);
            set_standing(Standing::Foreign);
        }
        crate::scheduler::instance::forget();
    }
    crate::resource::membership::forget();
    crate::process::board::forget();
}

/// Before the first runtime of the process.
pub(crate) fn install() {
    RUNS.store(true, Ordering::Relaxed);
    watch();
}

/// Before the process joins the machine, be it without a runtime.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches atomics and one thread-local without destructor.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// A microprocess's closure has returned. In a forked child there is nothing to switch to: the
/// process ends, as it does when the last thread of a child returns.
pub(crate) fn end_of_child() {
    if ON_MICROPROCESS.load(Ordering::Relaxed) {
        // C's exit, which is what the last thread's return leads to: `std::process::exit` takes a
        // lock of std's that a kernel thread may have held which began or ended at the moment of
        // the fork, and is not there to release it.
        // SAFETY: as the caller's last act, on a stack
        // that nobody else uses; no other kernel thread is there to exit as well.
        unsafe { libc::exit(0) };
    }
}
