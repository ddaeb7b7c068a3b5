//! Clocks: CLOCK_MONOTONIC, and the CPU time of a kernel thread.

use std::time::{Duration, Instant};

/// Returns CLOCK_MONOTONIC in nanoseconds: the clock that all address spaces of the machine share.
#[must_use]
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec to be written; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) use kumihimo_arch::kernel_attributes::cpu_time;

/// Returns the instant `time` from now. A time beyond the range of the clock becomes 30 years.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + Duration::from_secs(30 * 365 * 24 * 3600))
}
