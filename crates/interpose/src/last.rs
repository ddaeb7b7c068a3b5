//! The end of the last thread, which ends the process with status 0 (pthread_exit(3)).
//!
//! The C library counts kernel threads, those of the runtime included, so it never finds the last
//! one. The count here has the threads of the program: the first one, microprocesses, and kernel
//! threads that the program has created.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::phase;
use crate::record::Routine;

/// Threads that have not ended.
static LIVING: AtomicU64 = AtomicU64::new(1);
/// One more than the key whose destructor tells of the end of a kernel thread.
static KEY: AtomicUsize = AtomicUsize::new(0);

/// Rounds of destructors: `PTHREAD_DESTRUCTOR_ITERATIONS` of <limits.h>. The last one is the end.
const ROUNDS: usize = 4;

/// Begins to count. The caller is the first thread that creates another one.
pub(crate) fn begin() {
    let mut key = 0;
    // SAFETY: a live word, and a function of the right type.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } != 0 {
        return;
    }
    KEY.store(key as usize + 1, Ordering::SeqCst);
    // SAFETY: take nothing.
    if unsafe { libc::gettid() == libc::getpid() } {
        arm(1);
    }
}

/// Has [`ends`] called at the end of the calling kernel thread.
fn arm(round: usize) {
    if let Some(key) = KEY.load(Ordering::SeqCst).checked_sub(1) {
        let value = std::ptr::without_provenance::<c_void>(round);
        // SAFETY: a key that was made. The value is no address, and is not used as one.
        unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value) };
    }
}

unsafe extern "C" fn ends(round: *mut c_void) {
    match round.addr() {
        // Destructors of the program come first.
        round if round < ROUNDS => arm(round + 1),
        _ => thread_ends(),
    }
}

/// Counts a thread that begins.
pub(crate) fn thread_begins() {
    LIVING.fetch_add(1, Ordering::Relaxed);
}

/// Counts a thread that was not created after all.
pub(crate) fn thread_does_not_begin() {
    LIVING.fetch_sub(1, Ordering::Relaxed);
}

/// Counts the end of the calling thread. Ends the process if it was the last one.
pub(crate) fn thread_ends() {
    if !phase::has_started() {
        // In the child of a fork, where the C library counts.
        return;
    }
    // AcqRel: handlers of the exit see what the other threads have done.
    if LIVING.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: an integer.
        unsafe { libc::exit(0) };
    }
}

/// A kernel thread of the program.
struct Start {
    routine: Routine,
    argument: *mut c_void,
}

unsafe extern "C-unwind" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `create` has leaked the box, for this call.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let (routine, argument) = (start.routine, start.argument);
    drop(start);
    arm(1);
    // SAFETY: the creator's promise.
    unsafe { routine(argument) }
}

/// Creates a kernel thread of the program by `create`, a function of the C library.
pub(crate) fn counted(
    routine: Routine,
    argument: *mut c_void,
    create: impl FnOnce(Routine, *mut c_void) -> c_int,
) -> c_int {
    let start = Box::into_raw(Box::new(Start { routine, argument }));
    thread_begins();
    let done = create(run, start.cast());
    if done != 0 {
        thread_does_not_begin();
        // SAFETY: leaked above, and not passed on.
        drop(unsafe { Box::from_raw(start) });
    }
    done
}
