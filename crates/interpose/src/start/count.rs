//! How many threads of the program were microprocesses.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::real::libc;
use crate::start::report;

/// Threads that were created as microprocesses.
static MICROPROCESSES: AtomicU64 = AtomicU64::new(0);
/// Threads that were created as kernel threads.
static KERNEL_THREADS: AtomicU64 = AtomicU64::new(0);

/// Counts a thread that was created as a microprocess.
pub(crate) fn microprocess() {
    MICROPROCESSES.fetch_add(1, Ordering::Relaxed);
    report::add(true);
}

/// Counts a thread that was created as a kernel thread.
pub(crate) fn kernel_thread() {
    KERNEL_THREADS.fetch_add(1, Ordering::Relaxed);
    report::add(false);
}

/// Has the process print both numbers when it exits.
pub(crate) fn report_at_exit() {
    // SAFETY: the function is static.
    unsafe { libc::atexit(print) };
}

extern "C" fn print() {
    let micro = MICROPROCESSES.load(Ordering::Relaxed);
    let all = micro + KERNEL_THREADS.load(Ordering::Relaxed);
    eprintln!("kumi run: {micro} of {all} threads were microprocesses");
}
