//! What is seen of a running process: dumps, deadlock and starvation reports, metrics, and the
//! addresses that a debugger reads.
//!
//! Readers load what carriers publish; they stop nothing, except a thread whose stack is wanted.
//! May use `lifecycle` and what it may use.

pub(crate) mod deadlock;
pub mod debug;
pub(crate) mod dump;
pub(crate) mod dump_signal;
pub(crate) mod metrics;
pub(crate) mod starvation;
