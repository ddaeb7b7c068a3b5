//! Conformance tests of mounted file systems: the kernel's own file systems are the reference, and
//! real programs are the workload.
//!
//! - [`cases`]: POSIX, by system call. Each case runs in a fresh directory on two file systems and
//!   records its observations; [`compare()`] compares the two transcripts.
//! - [`work`]: typical uses of a file system: `git`, `tar`, `make`, `rsync`, `sqlite3`, ...
//! - [`Image`]: an ext2 image, made and checked by e2fsprogs, and readable by the kernel.
//! - [`Mounted`]: a server of Kumihimo with its mount, which is removed when dropped.
//! - [`crash`]: kills a server while it writes.
//!
//! For tests only. All functions panic if a requirement is violated.
#![forbid(unsafe_code)]

pub mod cases;
mod compare;
pub mod crash;
mod differences;
mod image;
mod mounted;
mod place;
mod trial;
pub mod work;

pub use compare::{Compared, compare, compare_some};
pub use differences::{Difference, Store, differences};
pub use image::{Image, Looped};
pub use mounted::{Mounted, Options, Organisation};
pub use place::Scratch;
pub use trial::{Before, Open, Path, Trial, errno_name};
