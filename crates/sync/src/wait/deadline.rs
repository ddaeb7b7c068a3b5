//! Conversion of a time-out to a deadline, without overflow.

use std::time::{Duration, Instant};

/// Returns the time `timeout` from now. `None` if `Instant` cannot represent it, which means no
/// deadline.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
