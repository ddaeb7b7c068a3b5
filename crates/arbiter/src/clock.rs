//! Monotonic clock in nanoseconds.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns CLOCK_MONOTONIC in nanoseconds, by the function of vdso(7).
pub(crate) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Converts a duration to nanoseconds, saturating at `u64::MAX`.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
