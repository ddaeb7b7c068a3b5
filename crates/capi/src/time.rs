//! Clock, time limits and sleeps. [`timer`]: timers.

pub mod timer;

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kumihimo::thread;

use crate::error::{Failure, catch_failure};

/// `KUMI_FOREVER`.
pub const FOREVER: i64 = -1;

/// An instant, and the value of [`kumi_now`] at it.
fn base() -> (Instant, i64) {
    static BASE: OnceLock<(Instant, i64)> = OnceLock::new();
    *BASE.get_or_init(|| (Instant::now(), monotonic()))
}

fn monotonic() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writes. CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Converts a time limit in nanoseconds; `None` is [`FOREVER`].
pub(crate) fn limit(timeout_ns: i64) -> Result<Option<Duration>, Failure> {
    match u64::try_from(timeout_ns) {
        Ok(ns) => Ok(Some(Duration::from_nanos(ns))),
        Err(_) if timeout_ns == FOREVER => Ok(None),
        Err(_) => Err(Failure::invalid(format!(
            "a time limit of {timeout_ns} ns: neither KUMI_FOREVER nor 0 or more"
        ))),
    }
}

/// Converts a time limit to a deadline. `None` is no deadline.
pub(crate) fn deadline(timeout_ns: i64) -> Result<Option<Instant>, Failure> {
    Ok(limit(timeout_ns)?.and_then(|limit| Instant::now().checked_add(limit)))
}

/// Converts a value of [`kumi_now`] to an instant.
pub(crate) fn instant(ns: i64) -> Result<Instant, Failure> {
    let ns_of = u64::try_from(ns)
        .map_err(|_| Failure::invalid(format!("a time of {ns} ns: kumi_now is never negative")))?;
    let (at, base_ns) = base();
    let base_ns = base_ns.unsigned_abs();
    let after = Duration::from_nanos(ns_of.saturating_sub(base_ns));
    let before = Duration::from_nanos(base_ns.saturating_sub(ns_of));
    Ok(at.checked_sub(before).unwrap_or(at) + after)
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds. See kumihimo/time.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_now() -> i64 {
    monotonic()
}

/// Blocks the caller for `ns` nanoseconds. See kumihimo/time.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_sleep(ns: i64) -> c_int {
    catch_failure(|| {
        let ns = u64::try_from(ns)
            .map_err(|_| Failure::invalid(format!("a sleep of {ns} ns, which is negative")))?;
        thread::sleep(Duration::from_nanos(ns));
        Ok(())
    })
}

/// Blocks the caller until [`kumi_now`] reaches `deadline_ns`. See kumihimo/time.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_sleep_until(deadline_ns: i64) -> c_int {
    catch_failure(|| {
        thread::sleep_until(instant(deadline_ns)?);
        Ok(())
    })
}
