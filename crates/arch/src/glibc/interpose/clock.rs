//! The CPU clock of the calling thread.
//!
//! Source: clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{call, runtime};
use crate::glibc::hook::hooked;
use crate::glibc::tls::next;

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The C library's function, which reads most clocks without a system call (vdso(7)).
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Looks the C library's function up. A program may read clocks in a signal handler, where the
/// look-up is not allowed.
pub(crate) fn prepare() {
    next(&NEXT, c"clock_gettime");
}

// A weak symbol: programs that change the time for themselves define this function as well, and
// theirs takes precedence.
hooked!(weak CLOCK_GETTIME, "clock_gettime", clock_gettime);

/// Replaces clock_gettime(2).
///
/// # Safety
/// Same requirements as clock_gettime(2).
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    if clock == libc::CLOCK_THREAD_CPUTIME_ID
        && let Some(used) = runtime().and_then(|runtime| runtime.cpu_time())
    {
        // SAFETY: the caller's promise.
        unsafe {
            (*to).tv_sec = (used / 1_000_000_000).cast_signed();
            (*to).tv_nsec = (used % 1_000_000_000).cast_signed();
        }
        return 0;
    }
    match NEXT.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        0 => unsafe {
            let arguments = [clock as usize, to.expose_provenance(), 0, 0, 0, 0];
            call(libc::SYS_clock_gettime, arguments) as c_int
        },
        // SAFETY: the address is that of a function of this type; the caller's promise.
        at => unsafe { std::mem::transmute::<usize, ClockGettime>(at)(clock, to) },
    }
}
