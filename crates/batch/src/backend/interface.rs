//! The interface that every back end implements.

use crate::op::Outcome;
use crate::request::Request;

/// Executes requests. Used by one thread at a time; may move between kernel threads.
pub trait Backend: Send {
    /// Returns the name of the back end: `uring`, `plain`, ...
    fn name(&self) -> &'static str;

    /// Executes all requests in their order, and returns the number of kernel entries. Each request
    /// has its outcome afterwards, and none is in flight.
    ///
    /// `outcomes` has the same length as `requests`. Blocks the kernel thread only in calls that
    /// are always plain.
    fn enter(&mut self, requests: &[Request<'_>], outcomes: &mut [Outcome]) -> u64;
}
