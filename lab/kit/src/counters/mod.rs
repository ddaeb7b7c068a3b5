//! Counters of the kernel: CPU time and switches, instructions, entries into the kernel, and
//! kernel threads.
//!
//! `counter` opens perf events by perf_event_open(2); `instructions` and `entries` count with it.
//! `usage` is getrusage(2), `kernel_threads` the task folder of proc(5).
//!
//! Numbers flow out as plain values; nothing here writes or measures by itself, and nothing uses
//! the rest of the crate but for the tests.

mod counter;
mod entries;
mod instructions;
mod kernel_threads;
mod usage;

pub use entries::Entries;
pub use instructions::Instructions;
pub use kernel_threads::{count_kernel_threads, kernel_threads};
pub use usage::Usage;
