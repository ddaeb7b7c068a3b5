//! The end of the last thread, which ends the process with status 0 (pthread_exit(3)).
//!
//! The C library counts kernel threads, those of the runtime included, so it never finds the last
//! one. The count here has the threads of the program: the first one, microprocesses, and kernel
//! threads that the program has created.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::real::libc;
use crate::signal::process;
use crate::start::{count, phase};
use crate::thread::call::Call;
use crate::thread::record::{Routine, is_created};

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

/// Has [`ends`] called at the end of the calling thread. Returns false if it cannot be.
fn arm(round: usize) -> bool {
    let Some(key) = KEY.load(Ordering::SeqCst).checked_sub(1) else { return false };
    let value = std::ptr::without_provenance::<c_void>(round);
    // SAFETY: a key that was made. The value is no address, and is not used as one.
    unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value) == 0 }
}

unsafe extern "C" fn ends(round: *mut c_void) {
    match round.addr() {
        // Destructors of the program come first.
        round if round < ROUNDS => _ = arm(round + 1),
        // SAFETY: takes nothing.
        _ if is_created() => unsafe { libc::exit(0) },
        _ => kernel_thread_ends(),
    }
}

/// Counts a thread that begins.
pub(crate) fn thread_begins() {
    LIVING.fetch_add(1, Ordering::Relaxed);
}

/// Counts the end of the calling thread. Returns whether it is the last one.
fn is_last() -> bool {
    // In the child of a fork, the C library counts.
    // AcqRel: handlers of the exit see what the other threads have done.
    phase::has_started() && LIVING.fetch_sub(1, Ordering::AcqRel) == 1
}

fn kernel_thread_ends() {
    let is_last = is_last();
    // SAFETY: take nothing.
    if !is_last && unsafe { libc::gettid() == libc::getpid() } && phase::has_started() {
        process::first_thread_has_left();
    }
    if is_last {
        // SAFETY: an integer.
        unsafe { libc::exit(0) };
    }
}

/// Counts the end of the calling microprocess. The last one ends the process, after its
/// destructors.
pub(crate) fn microprocess_ends() {
    if is_last() && !arm(1) {
        // SAFETY: an integer.
        unsafe { libc::exit(0) };
    }
}

unsafe extern "C-unwind" fn run(passed: *mut c_void) -> *mut c_void {
    // SAFETY: `counted` has passed it, to this call only.
    let call = unsafe { Call::<Routine>::take(passed) };
    count::kernel_thread();
    arm(1);
    // SAFETY: the creator's promise.
    unsafe { (call.routine)(call.argument) }
}

/// Creates a kernel thread of the program by `create`, a function of the C library.
pub(crate) fn counted(
    routine: Routine,
    argument: *mut c_void,
    create: impl FnOnce(Routine, *mut c_void) -> c_int,
) -> c_int {
    let passed = Call { routine, argument }.pass();
    thread_begins();
    let done = create(run, passed);
    if done != 0 {
        LIVING.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: no thread has it.
        let _ = unsafe { Call::<Routine>::take(passed) };
    }
    done
}
