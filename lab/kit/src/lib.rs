//! Shared by all Rust contenders of a benchmark, so that terms have the same meaning for all:
//! command line, clock, work inside the loops, and output.
//!
//! A contender is a program that is run as `prog BENCH [--vps N] [--variant V] [--queue Q]
//! [KEY=VALUE ...]`. It prints one line for each sample: `metric value unit [key=value ...]
//! [key:=value ...]`. `key=value` is part of the row's identity, `key:=value` is a note.

pub mod burst;
mod cargo;
mod counters;
pub mod files;
mod late;
mod measure;
mod page;
mod request;
pub mod rpc;
pub mod work;

pub use cargo::cargo;
pub use counters::{Entries, Instructions, Usage, count_kernel_threads, kernel_threads};
pub use late::Lateness;
pub use measure::{CpuClock, Memory, per, raise_descriptors, sample};
pub use page::{AwaitedPage, Provider};
pub use request::{BadRequest, Request};

/// Number of waiting bodies in `null-fork bulk`, and of sleepers in `timer`.
pub const CROWD: usize = 100_000;
