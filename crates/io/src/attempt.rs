//! The loop of every call on a descriptor that can be polled: attempt, wait for readiness, attempt
//! again.
//!
//! Only this loop and [`kumihimo_runtime::readiness`] decide that no microprocess waits for what is
//! there already. Their models are in `attempt/tests/loom.rs`.

use std::io;
use std::task::Poll;

use kumihimo_runtime::readiness::{Interest, Seen, Source};

/// Outcome of one attempt.
pub(crate) enum Outcome<T> {
    /// The call is over.
    Ended(io::Result<T>),
    /// As a success, and the kernel's buffer is now empty (reading) or full (writing).
    Drained(T),
    /// A signal interrupted it, or another way has to be tried.
    Repeat,
    /// The descriptor is not ready.
    NotReady,
}

/// Repeats `attempt`, which never waits, until it ends. Waits for readiness in between. With
/// `may_skip`, does not attempt first what is known to be unready.
#[inline]
pub(crate) fn attempt<T>(
    source: &Source,
    interest: Interest,
    may_skip: bool,
    mut attempt: impl FnMut() -> Outcome<T>,
    mut wait: impl FnMut(Seen) -> io::Result<()>,
) -> io::Result<T> {
    // Read before the attempt: any edge after this point ends the wait.
    let mut seen = source.seen(interest);
    // If the descriptor is known to be unready, the attempt would only fail.
    let mut skip = may_skip && !source.likely_ready(interest);
    loop {
        if !skip {
            match attempt() {
                Outcome::Ended(result) => return result,
                Outcome::Drained(value) => {
                    source.drained(interest, seen);
                    return Ok(value);
                }
                Outcome::Repeat => continue,
                Outcome::NotReady => {}
            }
        }
        wait(seen)?;
        seen = source.seen(interest);
        skip = false;
    }
}

/// As [`attempt`] for a future: `wait` enters its waker, and says whether there was an edge
/// meanwhile.
#[inline]
pub(crate) fn poll_attempt<T>(
    source: &Source,
    interest: Interest,
    mut attempt: impl FnMut() -> Outcome<T>,
    mut wait: impl FnMut(Seen) -> io::Result<Poll<()>>,
) -> Poll<io::Result<T>> {
    let mut seen = source.seen(interest);
    let mut skip = !source.likely_ready(interest);
    loop {
        if !skip {
            match attempt() {
                Outcome::Ended(result) => return Poll::Ready(result),
                Outcome::Drained(value) => {
                    source.drained(interest, seen);
                    return Poll::Ready(Ok(value));
                }
                Outcome::Repeat => continue,
                Outcome::NotReady => {}
            }
        }
        if wait(seen)?.is_pending() {
            return Poll::Pending;
        }
        seen = source.seen(interest);
        skip = false;
    }
}

#[cfg(all(test, loom))]
#[path = "attempt/tests/loom.rs"]
mod tests;
