//! Chapters on several processes.
//!
//! - `steered`: chapter 9, this process seen and steered from outside.
//! - `gates`: chapter 11, calls between processes, and an inversion over three of them.
//!
//! What they show is asked for at the control socket or measured by the benchmarks' contenders.

pub mod gates;
pub mod steered;
