//! The other sides of benchmarks: hidden subcommands, each a process of its own beside the measured
//! one, and the same for all contenders.
//!
//! - `echo`: the closed loop of `echo`; `priority`: both loops of `priority-io`.
//! - `outside`: the requests and the stalls of `stall`.
//! - `peer`: the servers on the other side of the sockets of `unwrapped`.
//!
//! Commands come in as arguments and lines of standard input; counts and latencies go out as lines
//! of standard output. Of this crate these modules may use `contender` alone.

pub mod echo;
pub mod outside;
pub mod peer;
pub mod priority;
