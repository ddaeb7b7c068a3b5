//! Chapters about microprocesses themselves: their number, their size, and the distribution of
//! work.
//!
//! - `sieve`, `million`, `ring`: chapters 1 to 3; `locks`: chapter 10, the locking designs.
//! - `kinds`: one interface over kernel threads and microprocesses, so that a chapter runs as both.
//! - `status`: memory and limits of this process, read from proc(5).
//!
//! Figures are added to the final table. A chapter may use `page` and the helpers in the tour's
//! root, but no other chapter.

pub mod kinds;
pub mod locks;
pub mod million;
pub mod ring;
pub mod sieve;
pub mod status;
