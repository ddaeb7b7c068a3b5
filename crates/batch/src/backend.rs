//! The maker of a batch's requests.

use std::io;

use crate::op::Outcome;
use crate::plain::Plain;
use crate::request::Request;
use crate::uring::Uring;

/// Makes requests. One at a time uses it; it may move between kernel threads.
pub trait Backend: Send {
    /// `uring`, `plain`, ...
    fn name(&self) -> &'static str;

    /// Makes all requests, in their order, and returns when each has its outcome: nothing is under
    /// way afterwards. Returns how often the kernel was entered.
    ///
    /// `outcomes` has room for as many. Blocks the kernel thread only in calls that are always
    /// plain.
    fn enter(&mut self, requests: &[Request<'_>], outcomes: &mut [Outcome]) -> u64;
}

/// The best back end that the machine allows: a uring with room for `entries`, else plain calls,
/// and why it is no uring.
pub fn open(entries: u32) -> (Box<dyn Backend>, Option<io::Error>) {
    match Uring::new(entries) {
        Ok(uring) => (Box::new(uring), None),
        Err(why) => (Box::new(Plain), Some(why)),
    }
}
