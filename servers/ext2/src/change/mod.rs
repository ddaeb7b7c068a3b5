//! Changes, from a modification in memory to the disk.
//!
//! An operation runs in a transaction (`transaction.rs`), in which it allocates blocks and inodes
//! (`allocate.rs`) and requires an order of writes. A commit (`commit.rs`) collects everything
//! modified and writes it in that order. Meanwhile `lost.rs` gives replaced files a name in
//! lost+found.
//!
//! Depends on `memory` and `layout`; `operations` depends on this module.

pub mod allocate;
pub mod commit;
pub mod lost;
pub mod transaction;
