//! Time source of records.

use std::time::Instant;

use kumihimo_arch::time;

/// A clock that any thread can read, at any rate.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begin: Instant,
    counter: bool,
}

impl Clock {
    /// Creates a clock. It uses the processor's counter if that is steady (some nanoseconds per
    /// read), and otherwise `clock_gettime` (20 to 50 ns). Reads sysfs, which may block.
    #[must_use]
    pub fn new() -> Clock {
        Clock { begin: Instant::now(), counter: time::has_steady_counter() }
    }

    /// Returns the current time in ticks. Async-signal-safe.
    #[inline(always)]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        if self.counter { time::counter() } else { self.nanoseconds() }
    }

    /// Returns the nanoseconds since the clock was created.
    #[must_use]
    pub fn nanoseconds(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Returns ticks and nanoseconds, read at about the same moment.
    #[must_use]
    pub fn pair(&self) -> (u64, u64) {
        let nanoseconds = self.nanoseconds();
        (if self.counter { time::counter() } else { nanoseconds }, nanoseconds)
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

/// Converts ticks to nanoseconds, from two [pairs](Clock::pair).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    first: (u64, u64),
    last: (u64, u64),
}

impl Scale {
    /// Creates a conversion. It is the more precise the further the pairs are apart.
    #[must_use]
    pub fn new(first: (u64, u64), last: (u64, u64)) -> Scale {
        Scale { first, last }
    }

    /// Returns the nanoseconds since the clock was created; 0 for earlier times.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let (t0, n0) = self.first;
        let past = i128::from(ticks) - i128::from(t0);
        let (dt, dn) = (self.last.0.saturating_sub(t0), self.last.1.saturating_sub(n0));
        // With a single pair, from a program that ended at once, a tick counts as a nanosecond.
        let scaled = if dt == 0 { past } else { past.saturating_mul(dn.into()) / i128::from(dt) };
        u64::try_from(scaled.saturating_add(n0.into()).max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_converts_ticks_to_nanoseconds() {
        let scale = Scale::new((1_000, 50), (4_000, 1_050));
        assert_eq!(
            [
                scale.nanoseconds(1_000),
                scale.nanoseconds(2_500),
                scale.nanoseconds(7_000),
                scale.nanoseconds(0)
            ],
            [50, 550, 2_050, 0]
        );
        assert_eq!(Scale::new((5, 7), (5, 7)).nanoseconds(6), 8);
        let clock = Clock::new();
        let first = clock.pair();
        let ticks = clock.ticks();
        while clock.nanoseconds() == first.1 {}
        let last = clock.pair();
        let at = Scale::new(first, last).nanoseconds(ticks);
        assert!(first.1 <= at && at <= last.1 + 1);
    }
}
