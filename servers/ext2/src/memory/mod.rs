//! State of the file system in memory.
//!
//! `cache.rs` holds blocks, `inodes.rs` inodes and their references, `bitmaps.rs` free blocks and
//! inodes, `index.rs` the names of a large directory, and `claims.rs` its blocks. `order.rs`
//! records the order in which modified blocks must reach the disk, and `commits.rs` the progress of
//! commits. `complaint.rs` reports damage.
//!
//! Data flows from the disk into the cache, and from there into the other structures. Each
//! structure has locks that are held briefly. The module depends on `layout` only.

pub mod bitmaps;
pub mod cache;
pub mod claims;
pub mod commits;
pub mod complaint;
pub mod index;
pub mod inodes;
pub mod order;
