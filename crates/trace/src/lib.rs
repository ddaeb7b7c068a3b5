//! Recording and checking of the execution of every microprocess, in files for Perfetto's UI
//! (<https://ui.perfetto.dev>).
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! ```text
//!   a VP's carrier, masked ---> Ring  \
//!   a VP's carrier, masked ---> Ring   > kumi-trace (kernel thread) --> spool (file)
//!   every other thread -------> SharedRing /    every few milliseconds         |
//!                                            at the end: Perfetto's format, Reader --> check
//! ```
//! While the program runs, a record is three words in a buffer of fixed size ([`record`],
//! [`ring`]). A record that finds no room is counted as lost. The expensive work (names, states,
//! protobuf) is done at the end of the run ([`export`]), from the spool, without loading it into
//! memory. A program that dies leaves the spool behind. `kumi trace` converts it
//! ([`session::recover`]); the trace then lacks at most the last few milliseconds.
//!
//! [`check()`] reads the finished file and verifies that states never overlap and that priorities
//! are exact. [`check_together`] does so for several processes that shared cores at a board.
//!
//! [`pprof`] writes profiles, whose messages are made in the same way.
#![forbid(unsafe_code)]

mod capture;
pub mod check;
pub mod export;
mod format;
pub mod pprof;
pub mod read;
pub mod script;
pub mod session;
pub mod spool;
#[cfg(test)]
mod tests;

pub use capture::{clock, record, ring};
pub use check::priority_order;
pub use check::{Checker, Finding, FindingKind, Report, Together, Verdict, check, check_together};
pub use format::names::{State, Summary};
pub use format::{names, perfetto, profile};
pub use read::{Reader, summaries};
pub use session::{Session, recover};
