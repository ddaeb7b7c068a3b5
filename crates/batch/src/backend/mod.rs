//! Back ends: each makes the requests of a batch.
//!
//! `interface` is the trait that a batch sees. `plain` makes one system call after the other;
//! `uring` enters the kernel once for all of them, and falls back to `plain` for what io_uring does
//! not do; `fault` fails on purpose, for tests. Uses `request` and `op`.

pub mod fault;
mod interface;
pub(crate) mod plain;
mod uring;

use std::io;

pub use interface::Backend;
pub use plain::Plain;
pub use uring::Uring;

/// The best back end that the machine allows: a uring with room for `entries`, else plain calls,
/// and why it is no uring.
pub fn open(entries: u32) -> (Box<dyn Backend>, Option<io::Error>) {
    match Uring::new(entries) {
        Ok(uring) => (Box::new(uring), None),
        Err(why) => (Box::new(Plain), Some(why)),
    }
}
