//! Threads, locks and waits of the C library on microprocesses, for unmodified programs.
//!
//! Functions named `kumi_interpose_NAME` replace those of the C library. Each behaves as the
//! function of that name, but a caller that is a microprocess waits as a microprocess. Two ways
//! lead here: `kumihimo::interpose!()` defines the names in a program (`linked`); `kumi run`
//! preloads `crates/preload`, which defines them, and `crates/run`, a shared library of this crate.
//!
//! - `start`: the runtime begins at the first thread of the program. `phase` says whether it has;
//!   `options` of `kumi run`; `count` of threads, and its `report`.
//! - `thread`: creation, join and end; its `entry`, its `record`; `attributes`; `identity` and
//!   `scheduling`; the `last` one; the `call` that it makes.
//! - `lot`: where microprocesses wait for an address. `mutex`, `condition`, `rwlock`,
//!   `semaphore`, `barrier`, `spin` and `futex` are built on it, `c11` on these.
//! - `descriptor`: sockets, and what the program closes.
//! - `signal`: handlers, masks, signals to one thread; `cancel`.
//! - `sleep`, `clock`: time.
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

mod attributes;
mod barrier;
mod c11;
mod call;
mod cancel;
mod clock;
mod condition;
mod count;
mod deadline;
mod descriptor;
mod entry;
mod futex;
mod identity;
mod last;
mod linked;
mod loom;
mod lot;
mod mutex;
mod options;
mod phase;
mod raw_call;
mod real;
mod record;
mod report;
mod rwlock;
mod scheduling;
mod scheduling_calls;
mod semaphore;
mod signal;
mod sleep;
mod special;
mod spin;
mod start;
mod thread;

pub use linked::{Note, begin_linked};
pub use options::{Heap, begin_preloaded};

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
