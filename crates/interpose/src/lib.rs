//! Threads, locks and waits of the C library on microprocesses, for unmodified programs.
//!
//! `kumi run` preloads this library and `crates/preload`, whose functions jump to those named
//! `kumi_interpose_*` here. Each replaces the function of the C library with the rest of its name,
//! and behaves as that one, but a caller that is a microprocess waits as a microprocess.
//!
//! - [`start`]: the runtime begins at the first thread of the program. [`phase`] says whether
//!   it has; [`options`] of `kumi run`;
//!   [`count`] of threads, and its [`report`].
//! - [`thread`]: creation, join and end; its [`entry`], its [`record`]; [`attributes`];
//!   [`identity`] and [`scheduling`]; the [`last`] one; the [`call`] that it makes.
//! - [`lot`]: where microprocesses wait for an address. [`mutex`], [`condition`], [`rwlock`],
//!   [`semaphore`], [`barrier`], [`spin`] and [`futex`] are built on it, [`c11`] on these.
//! - [`descriptor`]: sockets, and what the program closes.
//! - [`signal`]: handlers, masks, signals to one thread; [`cancel`].
//! - [`sleep`], [`clock`]: time.
//! - [`real`]: the C library's own functions; [`heap`]: the memory of the runtime.
//!
//! A call of `libc::NAME` in this library, in the runtime or in std reaches the C library, also for
//! the replaced names: see [`real`].
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

/// Sets errno. Returns -1.
fn failed(error: std::ffi::c_int) -> std::ffi::c_int {
    // SAFETY: errno belongs to the calling thread.
    unsafe { *libc::__errno_location() = error };
    -1
}
