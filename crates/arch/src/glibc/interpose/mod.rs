//! Replacements of the C library's functions that read or change what the kernel keeps per kernel
//! thread.
//!
//! - `signals`: the signal mask and the alternate signal stack.
//! - `scheduling`: nice value, CPU affinity and scheduling class.
//! - `clock`: the CPU clock of the calling thread.
//! - `identity`: credentials, capabilities, filters, namespaces, and `prctl`.
//! - `raw`: `syscall`, which leads to all of the above.
//!
//! The pthread functions, which take a thread block, are in `tls/interpose`.
//!
//! The functions are ordinary definitions in the executable, like the dlopen of [`crate::tls`], and
//! have the same limits: a caller that contains the system call instruction itself (rustix, Go) is
//! not seen. Each asks the runtime first ([`crate::thread_attributes`]). For every thread that is
//! no microprocess it makes the system call that the C library makes.
//!
//! The cheap attributes are kept per microprocess: a switch sets them on the kernel thread. For the
//! others the microprocess is *bound*: it keeps its kernel thread, which ends with it.

mod clock;
mod identity;
mod raw;
pub(crate) mod scheduling;
mod signals;

pub(crate) use clock::prepare;
pub use clock::{CLOCK_GETTIME, clock_gettime};
pub use raw::{SYSCALL, syscall};
pub use signals::{
    PTHREAD_SIGMASK, SIGALTSTACK, SIGPROCMASK, pthread_sigmask, sigaltstack, sigprocmask,
};

use std::ffi::{c_int, c_long};

use crate::kernel::{failed, returned};
use crate::system_call;
use crate::thread_attributes::runtime;

/// Makes a system call as the C library does: an error is -1 and errno.
///
/// # Safety
/// The requirements of the system call.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> c_long {
    // SAFETY: the caller's promise.
    returned(unsafe { system_call(number, arguments) })
}

/// As [`call`], for a call that changes the calling kernel thread in a way that is not reset when
/// another microprocess runs there: binds the calling microprocess first.
///
/// # Safety
/// The requirements of the system call.
unsafe fn call_bound(number: c_long, arguments: [usize; 6]) -> c_long {
    match runtime().and_then(|runtime| runtime.bind()) {
        Some(Err(error)) => failed(error),
        // SAFETY: the caller's promise.
        _ => unsafe { call(number, arguments) },
    }
}

/// Whether `thread`, the argument of a system call, is the calling kernel thread.
fn is_own(thread: c_int) -> bool {
    thread == 0 || thread == crate::kernel::gettid()
}
