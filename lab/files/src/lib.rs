//! The loads of `servers`: what is done with files on a mount, under any server. Source: P1 (its
//! two loads), and what file servers are measured by today.
//!
//! A program that loads is told what to do line by line ([`obey`]); it lives as long as the mount,
//! so that nothing is measured of its start.
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
