//! Benchmarks of microprocesses without I/O: their start and end, and waits for each other.
//! - `fork`: spawn and join, one by one, in crowds and in trees.
//! - `talk`, `sieve`: switches, messages, channels; `mutex`: sections; `park`: parked
//!   microprocesses.
//! - `timer`: many sleepers.
//!
//! A request consists of the keys of the command line. Samples are printed to standard output.
//! These modules use the crate's `variant`, and none of the other groups.

pub mod fork;
pub mod mutex;
pub mod park;
pub mod sieve;
pub mod talk;
pub mod timer;
