//! Back ends: each executes the requests of a batch.
//!
//! `interface` is the trait that a batch uses. `plain` makes one system call for each request.
//! `uring` enters the kernel once for all of them, and falls back to `plain` for requests that
//! io_uring does not support. `fault` injects failures, for tests. Uses `request` and `op`.

pub mod fault;
mod interface;
pub(crate) mod plain;
mod uring;

use std::io;

pub use interface::Backend;
pub use plain::Plain;
pub use uring::Uring;

/// Opens the best back end that the machine allows: a uring with room for `entries`, otherwise
/// plain calls with the reason why there is no uring.
pub fn open(entries: u32) -> (Box<dyn Backend>, Option<io::Error>) {
    match Uring::new(entries) {
        Ok(uring) => (Box::new(uring), None),
        Err(why) => (Box::new(Plain), Some(why)),
    }
}
