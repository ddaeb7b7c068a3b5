//! Loads of the benchmark `servers`: operations on files of a mount, the same for every server.
//! Sources: the two loads in P1, and common benchmarks of file servers.
//!
//! A load program executes commands from its standard input ([`obey`]). It lives as long as the
//! mount, so that its start is not measured.
#![forbid(unsafe_code)]

pub mod aligned;
pub mod clock;
mod closed;
mod commands;
pub mod fileread;
mod obey;
mod outcome;
mod slow;
mod stream;
pub mod tree;

pub use closed::run as closed;
pub use commands::{COMMANDS, shim};
pub use obey::obey;
pub use outcome::{Outcome, Spent};
