//! The file system's state in memory.
//!
//! `cache.rs` holds blocks, `inodes.rs` inodes and their references, `bitmaps.rs` free blocks and
//! inodes, `index.rs` the names of a large directory. `order.rs` records which of the modified
//! blocks must reach the disk before which, `commits.rs` how far that has come. `complaint.rs`
//! reports damage.
//!
//! Data flows from the disk into the cache, and from there into the others. Each structure locks
//! itself for moments; none uses another room but `layout`, and none refers to the file system.

pub mod bitmaps;
pub mod cache;
pub mod commits;
pub mod complaint;
pub mod index;
pub mod inodes;
pub mod order;
