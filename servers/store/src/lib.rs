//! Interfaces of a file server: the [`Store`] that it serves, and the [`Disk`] below it.
//!
//! A store is independent of its server: it has no threads, messages or descriptors of `/dev/fuse`.
//! A disk is the block access that the server's organisation provides. Any kind of thread may call
//! both; locks are those of `kumihimo::sync`, which block the calling microprocess or kernel
//! thread.
#![forbid(unsafe_code)]

pub mod acl;
mod disk;
mod store;
mod values;

pub use disk::{DELAYED, Delayed, Disk, FileDisk, open_disk};
pub use rustix::io::Errno;
pub use store::{Handle, Listed, Result, Seek, Store, XattrMode};
pub use values::{Attributes, Caller, Changes, Entry, Kind, New, Node, Stamp, Statistics, Time};
