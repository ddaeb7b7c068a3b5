//! What a file server stands on: the [`Store`] that it serves, and the [`Disk`] under it.
//!
//! A store knows nothing of its server: no thread, no message, no file descriptor of `/dev/fuse`. A
//! disk is block access as the server's organisation gives it. Both are called by whatever kind of
//! thread the organisation has; locks are `kumihimo::sync`'s, which block the calling microprocess
//! or kernel thread.
#![forbid(unsafe_code)]

mod disk;
mod store;
mod values;

pub use disk::{DELAYED, Delayed, Disk, FileDisk, open_disk};
pub use rustix::io::Errno;
pub use store::{Handle, Listed, Result, Seek, Store, XattrMode};
pub use values::{Attributes, Caller, Changes, Entry, Kind, New, Node, Stamp, Statistics, Time};
