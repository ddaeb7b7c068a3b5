//! The time limit of one blocking call.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use kumihimo_runtime::cancel;
use kumihimo_runtime::readiness::{Interest, Seen, Source};

/// Time limit of one call: the socket's own timeout or the scope's deadline, whichever is earlier.
pub(crate) struct Limit {
    at: Option<Instant>,
    /// Whether `at` is the scope's deadline, not the socket's timeout.
    scope: bool,
}

impl Limit {
    pub(crate) fn new(timeout: Option<Duration>) -> Limit {
        // A timeout beyond the clock's range sets no limit.
        let own = timeout.and_then(|t| Instant::now().checked_add(t));
        match (own, cancel::deadline()) {
            (own, None) => Limit { at: own, scope: false },
            (Some(own), Some(scope)) if own <= scope => Limit { at: Some(own), scope: false },
            (_, Some(scope)) => Limit { at: Some(scope), scope: true },
        }
    }

    /// Waits for `interest`. `exceeded` makes the error of the socket's own timeout.
    pub(crate) fn wait(
        &self,
        source: &Source,
        interest: Interest,
        seen: Seen,
        exceeded: fn() -> io::Error,
    ) -> io::Result<()> {
        source.wait(interest, seen, self.at).map_err(|e| match e.kind() {
            ErrorKind::TimedOut if self.scope => Limit::scope_passed(),
            ErrorKind::TimedOut => exceeded(),
            _ => e,
        })
    }

    /// Remaining time, for a system call that blocks by itself.
    pub(crate) fn remaining(&self) -> io::Result<Option<Duration>> {
        match self.at.map(|at| at.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(Limit::scope_passed()),
            left => Ok(left),
        }
    }

    pub(crate) fn scope_passed() -> io::Error {
        io::Error::new(ErrorKind::TimedOut, "the deadline of an enclosing scope has passed")
    }
}
