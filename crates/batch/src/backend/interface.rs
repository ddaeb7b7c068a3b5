//! What every back end implements.

use crate::op::Outcome;
use crate::request::Request;

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
