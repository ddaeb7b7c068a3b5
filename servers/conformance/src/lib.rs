//! What a mounted file system must do, told by real programs and by the kernel's own file systems
//! beside it.
//!
//! - [`cases`]: POSIX, call by call. Each case runs in a fresh directory on two file systems and
//!   writes down what it saw; [`compare()`] compares.
//! - [`work`]: what people do with a file system: `git`, `tar`, `make`, `rsync`, `sqlite3`, ...
//! - [`Image`]: an ext2 image, made, checked and read back by e2fsprogs and the kernel.
//! - [`Mounted`]: a server of ours, with its mount, never left behind.
//! - [`crash`]: a server that is killed while it writes.
//!
//! For tests only. Everything panics where a test is to fail.
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
