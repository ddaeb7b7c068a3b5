//! Changes, from a modification in memory to the disk.
//!
//! An operation runs in a transaction (`transaction.rs`), in which it allocates blocks and inodes
//! (`allocate.rs`) and demands an order of writes. A commit (`commit.rs`) collects everything that
//! was modified and writes it in that order; `lost.rs` gives replaced files a name in lost+found
//! meanwhile.
//!
//! Uses `memory` and `layout`; operations stand above.

pub mod allocate;
pub mod commit;
pub mod lost;
pub mod transaction;
