//! Counters of the kernel: CPU time and context switches, instructions, system calls, and kernel
//! threads.
//!
//! `counter` opens perf events by perf_event_open(2); `instructions` and `entries` count with it.
//! `usage` reads getrusage(2), and `kernel_threads` the task directory of proc(5).
//!
//! Results are plain values. Nothing here prints or measures on its own, and only the tests use the
//! rest of the crate.

mod counter;
mod entries;
mod instructions;
mod kernel_threads;
mod usage;

pub use entries::Entries;
pub use instructions::Instructions;
pub use kernel_threads::{count_kernel_threads, kernel_threads};
pub use usage::Usage;
