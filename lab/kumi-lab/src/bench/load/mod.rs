//! Load generators and peers of benchmarks: hidden subcommands, each a process beside the measured
//! one, and the same for all contenders.
//!
//! - `echo`: the closed loop of `echo`; `priority`: both loops of `priority-io`.
//! - `requests`: the clients of the unmodified servers of `run`.
//! - `outside`: the requests and the stalls of `stall`.
//! - `peer`: the processes at the other end of the sockets of `unwrapped`.
//!
//! Commands are arguments and lines of standard input. Counts and latencies are lines of standard
//! output. From the rest of the crate, these modules may use only `contender`.

pub mod echo;
pub mod outside;
pub mod peer;
pub mod priority;
pub mod requests;
