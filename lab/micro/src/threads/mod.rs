//! Benchmarks of microprocesses alone: their beginning and end, and how they wait for each other.
//!
//! - `fork`: spawn and join, one by one, in crowds and in trees.
//! - `talk`, `sieve`: switches, messages, channels; `mutex`: sections; `park`: parked ones.
//! - `timer`: many sleepers.
//!
//! A request comes in as keys of the command line and goes out as samples on standard output.
//! These modules use the crate's `variant`, and none of the other rooms.

pub mod fork;
pub mod mutex;
pub mod park;
pub mod sieve;
pub mod talk;
pub mod timer;
