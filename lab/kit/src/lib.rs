//! What every Rust contender of a benchmark shares, so that the same words mean the same thing for
//! each of them: the command line, the clock, the work inside the loops, and the output.
//!
//! A contender is a program run as
//! `prog BENCH [--vps N] [--variant V] [--queue Q] [KEY=VALUE ...]`. It prints one line a sample:
//! `metric value unit [key=value ...] [key:=value ...]`. `key=value` is part of the row's identity,
//! `key:=value` only a note beside it.

pub mod burst;
mod counters;
pub mod files;
mod late;
mod measure;
mod page;
mod request;
pub mod rpc;
pub mod work;

pub use counters::{Entries, Instructions, Usage, count_kernel_threads, kernel_threads};
pub use late::Lateness;
pub use measure::{CpuClock, Memory, per, raise_descriptors, sample};
pub use page::{AwaitedPage, Provider};
pub use request::{BadRequest, Request};

/// Bodies that wait at the gate in `null-fork bulk`, sleepers in `timer`: one number for all.
pub const CROWD: usize = 100_000;
