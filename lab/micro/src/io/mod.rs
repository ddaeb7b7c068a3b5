//! Benchmarks of calls that wait: sockets, files, and calls that no runtime wraps.
//!
//! - `echo`, `http`, `priority_io`, `batch`, `transaction`: requests over sockets.
//! - `files`, `kernel_threads`: reads of files, and the kernel threads that they occupy.
//! - `stall`, `unwrapped`: microprocesses that block in the kernel beside requests.
//!
//! A request consists of the keys of the command line. Samples are printed to standard output.
//! These modules use the crate's `variant`, and none of the other groups.

pub mod batch;
pub mod echo;
pub mod files;
pub mod http;
pub mod kernel_threads;
pub mod priority_io;
pub mod stall;
pub mod transaction;
pub mod unwrapped;
mod wrapped;
