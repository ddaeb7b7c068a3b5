//! The interface that every back end implements.

use crate::op::Outcome;
use crate::request::Request;

/// Executes requests. Used by one thread at a time; may move between kernel threads.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::Backend;
/// use kumihimo_batch::{Outcome, Plain, Request}; // An internal crate.
///
/// /// Plain system calls, with a count of the requests.
/// struct Counting(u64);
///
/// impl Backend for Counting {
///     fn name(&self) -> &'static str {
///         "counting"
///     }
///
///     fn enter(&mut self, requests: &[Request<'_>], outcomes: &mut [Outcome]) -> u64 {
///         self.0 += requests.len() as u64;
///         Plain.enter(requests, outcomes)
///     }
/// }
///
/// let mut back_end = Counting(0);
/// assert_eq!(back_end.enter(&[], &mut []), 0);
/// assert_eq!((back_end.name(), back_end.0), ("counting", 0));
/// ```
pub trait Backend: Send {
    /// Returns the name of the back end: `uring`, `plain`, ...
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Backend;
    /// use kumihimo_batch::Plain; // An internal crate.
    ///
    /// assert_eq!(Plain.name(), "plain");
    /// ```
    fn name(&self) -> &'static str;

    /// Executes all requests in their order, and returns the number of kernel entries. Each request
    /// has its outcome afterwards, and none is in flight.
    ///
    /// `outcomes` has the same length as `requests`. Blocks the kernel thread only in calls that
    /// are always plain.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Backend;
    /// use kumihimo_batch::Plain; // An internal crate.
    ///
    /// // Nothing is requested, so the kernel is not entered.
    /// assert_eq!(Plain.enter(&[], &mut []), 0);
    /// ```
    fn enter(&mut self, requests: &[Request<'_>], outcomes: &mut [Outcome]) -> u64;
}
