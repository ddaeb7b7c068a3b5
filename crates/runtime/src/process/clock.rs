//! Clocks: CLOCK_MONOTONIC, and the CPU time of a kernel thread.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns CLOCK_MONOTONIC in nanoseconds: the clock that all address spaces of the machine share.
///
/// Calls the function of vdso(7), not the C library's, which is replaced for the CPU clocks of
/// microprocesses.
#[must_use]
#[inline]
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) use kumihimo_arch::kernel_attributes::cpu_time;

/// Returns the instant `time` from now. A time beyond the range of the clock becomes 30 years.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + Duration::from_secs(30 * 365 * 24 * 3600))
}
