//! What every microprocess did, in a file that Perfetto's UI (<https://ui.perfetto.dev>) opens.
//!
//! ```text
//!   a VP's carrier, masked ---> Ring  \
//!   a VP's carrier, masked ---> Ring   > kumi-trace (kernel thread) --> spool (file)
//!   every other thread -------> SharedRing /    every few milliseconds         |
//!                                            at the end: Perfetto's format, Reader --> check
//! ```
//! While the program runs, a record is three words in a buffer of fixed size ([`record`],
//! [`ring`]); one that finds no room is counted. What costs time (names, states, protobuf) is done
//! at the end of the run ([`export`]), from the spool, without holding it in memory. A program that
//! dies leaves the spool; `kumi trace` converts it ([`session::recover`]), complete but for the
//! last few milliseconds.
//!
//! [`check()`] reads the finished file back and proves that states never overlap and that
//! priorities are exact; [`check_together`] does so for several processes that shared the cores at
//! a board.
#![forbid(unsafe_code)]

mod capture;
pub mod check;
pub mod export;
mod format;
pub mod read;
pub mod session;
pub mod spool;
#[cfg(test)]
mod tests;

pub use capture::{clock, record, ring};
pub use check::priority_order;
pub use check::{Report, Together, Verdict, check, check_together};
pub use format::names::{State, Summary};
pub use format::{names, perfetto};
pub use read::{Reader, summaries};
pub use session::{Session, recover};
