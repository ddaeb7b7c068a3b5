//! fork(2) inside a microprocess.
//!
//! The child has one kernel thread, the one that forked, and on it one microprocess. There it is a
//! plain kernel thread from the first instruction on: `sync` and `net` block that thread, nothing
//! can be spawned, and the end of its closure ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use crate::kernel_thread::gs_record::{KernelThread, Standing, set_standing, standing};
use crate::microprocess::foreign_thread;
use crate::process::board;

static RUNS: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static ON_MICROPROCESS: AtomicBool = AtomicBool::new(false);
/// Registered by rooms above: in the child, forgets the parent's instance.
static FORGET_INSTANCE: OnceLock<fn()> = OnceLock::new();
/// Registered by rooms above: in the child, forgets the parent's membership of the machine.
static FORGET_MEMBERSHIP: OnceLock<fn()> = OnceLock::new();

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
    }
    // `get` is a load: it waits for no thread that the child lacks.
    [&FORGET_INSTANCE, &FORGET_MEMBERSHIP].into_iter().filter_map(OnceLock::get).for_each(|f| f());
    board::forget();
}

/// Before the first runtime of the process, whose instance the child forgets.
pub(crate) fn install(forget: fn()) {
    let _ = FORGET_INSTANCE.set(forget);
    RUNS.store(true, Ordering::Relaxed);
    watch();
}

/// Before the process joins the machine, be it without a runtime: the child forgets that.
pub(crate) fn install_membership(forget: fn()) {
    let _ = FORGET_MEMBERSHIP.set(forget);
    watch();
}

fn watch() {
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
