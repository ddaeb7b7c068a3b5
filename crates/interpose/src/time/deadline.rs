//! Deadlines of the C library: a clock and a time on it.

use crate::real::libc;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// A deadline of a call of the program.
#[derive(Clone, Copy)]
pub(crate) enum Deadline {
    Never,
    /// At a time of a clock, which may be set meanwhile.
    At(libc::clockid_t, libc::timespec),
}

/// Checks a time as the C library does: EINVAL unless the nanoseconds are a fraction of a second.
pub(crate) fn check(time: &libc::timespec) -> Result<(), c_int> {
    if (0..1_000_000_000).contains(&time.tv_nsec) { Ok(()) } else { Err(libc::EINVAL) }
}

impl Deadline {
    /// Whether the C library's locks take times of this clock.
    pub(crate) fn is_of(clock: libc::clockid_t) -> bool {
        clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
    }

    /// A time of `clock` that the program has passed.
    ///
    /// # Errors
    /// `EINVAL` if the nanoseconds are out of range, or the clock is neither the calendar's nor the
    /// monotonic one.
    ///
    /// # Safety
    /// `at` is a readable time.
    pub(crate) unsafe fn at(
        clock: libc::clockid_t,
        at: *const libc::timespec,
    ) -> Result<Deadline, c_int> {
        if !Deadline::is_of(clock) {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's promise.
        let at = unsafe { *at };
        check(&at)?;
        Ok(Deadline::At(clock, at))
    }

    /// A time from now on, on the monotonic clock.
    pub(crate) fn after(length: Duration) -> Deadline {
        let now = now(libc::CLOCK_MONOTONIC);
        let nanoseconds = now.tv_nsec + i64::from(length.subsec_nanos());
        let carry = nanoseconds / 1_000_000_000;
        i64::try_from(length.as_secs())
            .ok()
            .and_then(|seconds| now.tv_sec.checked_add(seconds)?.checked_add(carry))
            .map_or(Deadline::Never, |tv_sec| {
                let tv_nsec = nanoseconds % 1_000_000_000;
                Deadline::At(libc::CLOCK_MONOTONIC, libc::timespec { tv_sec, tv_nsec })
            })
    }

    /// The time that is left; zero if it has passed. `None` if there is no deadline, or none that
    /// 64 bits of nanoseconds can count up to.
    pub(crate) fn left(self) -> Option<Duration> {
        let Deadline::At(clock, at) = self else { return None };
        let now = now(clock);
        // In 128 bits: the seconds of a program may be as many as 64 bits hold.
        let left = (i128::from(at.tv_sec) - i128::from(now.tv_sec)) * 1_000_000_000
            + i128::from(at.tv_nsec - now.tv_nsec);
        if left <= 0 {
            return Some(Duration::ZERO);
        }
        u64::try_from(left).ok().map(Duration::from_nanos)
    }

    /// Whether there is one.
    pub(crate) fn is_some(self) -> bool {
        matches!(self, Deadline::At(..))
    }

    /// The deadline on the runtime's clock. `None`: wait as long as it takes.
    pub(crate) fn instant(self) -> Option<Instant> {
        Instant::now().checked_add(self.left()?)
    }

    /// Whether the deadline has passed. Its clock may have been set since it was converted.
    pub(crate) fn has_passed(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

fn now(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live time; the clock exists.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;

    fn time(tv_sec: i64, tv_nsec: i64) -> libc::timespec {
        libc::timespec { tv_sec, tv_nsec }
    }

    #[test]
    fn nanoseconds_are_a_fraction_of_a_second() {
        assert_eq!(check(&time(-1, 999_999_999)), Ok(()));
        assert_eq!(check(&time(1, 1_000_000_000)), Err(libc::EINVAL));
        assert_eq!(check(&time(1, -1)), Err(libc::EINVAL));
    }

    #[test]
    fn other_clocks_are_refused() {
        let at = time(1, 0);
        // SAFETY: a live time.
        let on = |clock| unsafe { Deadline::at(clock, &raw const at) }.map(|_| ());
        assert_eq!(on(libc::CLOCK_REALTIME), Ok(()));
        assert_eq!(on(libc::CLOCK_PROCESS_CPUTIME_ID), Err(libc::EINVAL));
    }

    #[test]
    fn past_has_no_time_left() {
        for at in [time(0, 0), time(i64::MIN, 0)] {
            let deadline = Deadline::At(MONOTONIC, at);
            assert_eq!(deadline.left(), Some(Duration::ZERO));
            assert!(deadline.has_passed());
        }
    }

    #[test]
    fn remote_future_is_never() {
        let deadline = Deadline::At(MONOTONIC, time(i64::MAX, 0));
        assert_eq!((deadline.left(), deadline.instant()), (None, None));
        assert!(!deadline.has_passed());
        assert!(!Deadline::after(Duration::MAX).is_some());
    }

    #[test]
    fn length_ends_at_that_time_from_now() {
        let length = Duration::new(3600, 999_999_999);
        let before = now(MONOTONIC);
        let Deadline::At(clock, at) = Deadline::after(length) else { panic!("a deadline") };
        let after = now(MONOTONIC);
        let nanoseconds = |time: libc::timespec| {
            i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
        };
        let length = length.as_nanos().cast_signed();
        assert_eq!((clock, check(&at)), (MONOTONIC, Ok(())));
        let ends = nanoseconds(before) + length..=nanoseconds(after) + length;
        assert!(ends.contains(&nanoseconds(at)));
    }
}
