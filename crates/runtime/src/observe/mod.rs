//! Observation of a running process: dumps, holders of locks, reports, metrics, and the
//! addresses that a debugger reads.
//!
//! Readers load values that carriers publish. They stop no thread, except one whose running stack
//! is sampled. May use `lifecycle` and the rooms that `lifecycle` may use.

pub mod counters;
pub(crate) mod deadlock;
pub mod debug;
pub(crate) mod dump;
pub(crate) mod dump_signal;
pub(crate) mod exact;
pub(crate) mod holders;
pub mod locks;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod other_threads;
pub mod profile;
pub(crate) mod starvation;
pub(crate) mod wait_graph;
