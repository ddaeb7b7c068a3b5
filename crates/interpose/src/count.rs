//! How many threads of the program were microprocesses.

use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that were created as microprocesses.
pub(crate) static MICROPROCESSES: AtomicU64 = AtomicU64::new(0);
/// Threads that were created as kernel threads.
pub(crate) static KERNEL_THREADS: AtomicU64 = AtomicU64::new(0);

/// Has the process print both numbers when it exits.
pub(crate) fn report_at_exit() {
    // SAFETY: the function is static.
    unsafe { libc::atexit(report) };
}

extern "C" fn report() {
    let micro = MICROPROCESSES.load(Ordering::Relaxed);
    let all = micro + KERNEL_THREADS.load(Ordering::Relaxed);
    eprintln!("kumi run: {micro} of {all} threads were microprocesses");
}
