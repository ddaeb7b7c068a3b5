//! Chapters on microprocesses themselves: how many, how small, and how their work spreads.
//!
//! - `sieve`, `million`, `ring`: chapters 1 to 3; `locks`: chapter 10, the locking designs.
//! - `kinds`: one interface over kernel threads and microprocesses, so that a chapter runs as both.
//! - `status`: memory and limits of this process, read from proc(5).
//!
//! Figures flow from a chapter to the table of the last page. A chapter may use `page` and the
//! helpers of the tour's root, and of other chapters nothing.

pub mod kinds;
pub mod locks;
pub mod million;
pub mod ring;
pub mod sieve;
pub mod status;
