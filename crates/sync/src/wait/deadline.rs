//! From a duration to a point in time, without overflow.

use std::time::{Duration, Instant};

/// The point in time `timeout` from now. None: later than the clock can say, that is, never.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
