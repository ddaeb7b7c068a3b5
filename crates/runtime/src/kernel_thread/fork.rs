//! fork(2) inside a microprocess.
//!
//! The child has one kernel thread, the one that forked, and on it one microprocess. In the child
//! that microprocess is a plain kernel thread from the first instruction on: `sync` and `net` block
//! that thread, spawns fail, and the end of its closure ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use crate::kernel_thread::gs_record::{KernelThread, Standing, set_standing, standing};
use crate::microprocess::foreign_thread;
use crate::process::board;

static RUNS: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static ON_MICROPROCESS: AtomicBool = AtomicBool::new(false);
/// Hook of a higher room: forgets the parent's instance in the child.
static FORGET_INSTANCE: OnceLock<fn()> = OnceLock::new();
/// Hook of a higher room: forgets the parent's membership of the machine in the child.
static FORGET_MEMBERSHIP: OnceLock<fn()> = OnceLock::new();

/// Whether this process is a fork of one that ran a runtime.
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    if RUNS.load(Ordering::Relaxed) {
        // Stored in the caller's TLS block, of which the child has a copy.
        FORKED.store(true, Ordering::Relaxed);
        if standing() != Standing::Foreign {
            // SAFETY: not foreign: GS points to the child's copy of the record of the caller's
            // kernel thread.
            unsafe { KernelThread::here() }.keep_to_no_core();
        }
        if standing() != Standing::Foreign || foreign_thread::forget() {
            ON_MICROPROCESS.store(true, Ordering::Relaxed);
            set_standing(Standing::Foreign);
        }
    }
    // `get` is a load, so it waits for no thread that the child lacks.
    [&FORGET_INSTANCE, &FORGET_MEMBERSHIP].into_iter().filter_map(OnceLock::get).for_each(|f| f());
    board::forget();
}

/// Registers the hook that forgets the instance. Called before the first runtime of the process
/// starts.
pub(crate) fn install(forget: fn()) {
    let _ = FORGET_INSTANCE.set(forget);
    RUNS.store(true, Ordering::Relaxed);
    watch();
}

/// Registers the hook that forgets the membership. Called before the process joins the machine,
/// with or without a runtime.
pub(crate) fn install_membership(forget: fn()) {
    let _ = FORGET_MEMBERSHIP.set(forget);
    watch();
}

fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler accesses atomics and one thread-local without destructor.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Ends the process if this is a forked child, where a microprocess's closure has returned and
/// there is nothing to switch to. The process ends in the same way when the last thread of a child
/// returns.
pub(crate) fn end_of_child() {
    if ON_MICROPROCESS.load(Ordering::Relaxed) {
        // C's `exit`, to which the return of the last thread leads. `std::process::exit` takes a
        // lock of std, which a kernel thread that started or ended at the moment of the fork may
        // have held. That thread does not exist in the child and would never release it.
        // SAFETY: the caller's last action, on a stack that no other thread uses; no other kernel
        // thread exists that could exit as well.
        unsafe { libc::exit(0) };
    }
}
