//! Operations of a store, on inodes, names and data.
//!
//! `store.rs` implements the trait [`Store`](kumihimo_store::Store): it finds the inode
//! (`nodes.rs`), locks it and calls one of the other files. `names.rs` and `rename.rs` change
//! directories through `directory.rs`. `file.rs`, `space.rs` and `map.rs` change data and its
//! blocks, and `xattrs.rs` extended attributes. `walk.rs` visits a whole block map. `ends.rs` frees
//! inodes without names.
//!
//! All changes run in a transaction of `change`. Depends on all modules below.

pub mod directory;
pub mod ends;
pub mod file;
pub mod map;
pub mod names;
pub mod nodes;
pub mod rename;
pub mod space;
pub mod store;
pub mod walk;
pub mod xattrs;
