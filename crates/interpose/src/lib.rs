//! Threads, locks and waits of the C library on microprocesses, for unmodified programs.
//!
//! Functions named `kumi_interpose_NAME` replace those of the C library. Each behaves as the
//! function of that name, but a caller that is a microprocess waits as a microprocess. Two ways
//! lead here: `kumihimo::interpose!()` defines the names in a program (`start::linked`); `kumi run`
//! preloads `crates/preload`, which defines them, and `crates/run`, a shared library of this crate.
//!
//! - `start`: the runtime begins at the first thread of the program.
//! - `thread`: creation, join and end, and what belongs to a thread.
//! - `lock`: locks, and where microprocesses wait for them. `c11`: threads and locks of C11 on
//!   these. `special`: objects that the kernel takes part in.
//! - `descriptor`: sockets, and what the program closes.
//! - `signal`: handlers, masks, signals to one thread, cancellation.
//! - `time`: sleeps, clocks, deadlines.
//! - `real`: the C library's own functions; `raw_call`: a report of calls that go past it.
//!
//! `libc` in this crate is `real::libc`, whose functions are the C library's own, also for the
//! replaced names.
//!
//! The words of locks stay the C library's: an operation tries first by the C library's own
//! non-blocking function, and only the wait is different. So kernel threads and microprocesses
//! share every object, and the C library may use it as well.
// Models are in `tests/loom.rs`, which has the files that they run.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(loom)))]
// The functions have the requirements of those that they replace.
#![allow(clippy::missing_safety_doc)]

mod c11;
mod descriptor;
mod lock;
mod loom;
mod raw_call;
mod real;
mod signal;
mod special;
mod start;
mod thread;
mod time;

pub use start::linked::{Note, begin_linked};
pub use start::options::{Heap, begin_preloaded};

use crate::real::libc;

fn errno() -> std::ffi::c_int {
    // SAFETY: errno belongs to the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets errno. Returns -1.
fn failed(error: std::ffi::c_int) -> std::ffi::c_int {
    // SAFETY: errno belongs to the calling thread.
    unsafe { *libc::__errno_location() = error };
    -1
}
