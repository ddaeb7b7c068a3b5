//! Chapters about several processes.
//!
//! - `steered`: chapter 9, this process observed and steered from outside.
//! - `gates`: chapter 11, calls between processes, and an inversion over three of them.
//! - `unmodified`: chapter 14, a server that was written for kernel threads.
//! - `found`: chapter 15, planted faults found from outside.
//!
//! The values come from the control socket or from the benchmarks' contenders.

pub mod found;
pub mod gates;
pub mod steered;
pub mod unmodified;
