//! Chapters about several processes.
//!
//! - `steered`: chapter 9, this process observed and steered from outside.
//! - `gates`: chapter 11, calls between processes, and an inversion over three of them.
//! - `unmodified`: chapter 14, a server that was written for kernel threads.
//!
//! The values come from the control socket or from the benchmarks' contenders.

pub mod gates;
pub mod steered;
pub mod unmodified;
