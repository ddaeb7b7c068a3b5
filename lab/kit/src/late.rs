//! Delays of wake-ups.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// A distribution of delays. Values are nanoseconds, kept to three significant digits.
#[derive(Clone, Debug)]
pub struct Lateness(Histogram<u64>);

impl Default for Lateness {
    fn default() -> Self {
        Lateness(Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("bounds are valid"))
    }
}

impl Lateness {
    /// Records the time since `deadline`.
    ///
    /// # Panics
    /// If the deadline has not passed yet, because early wake-ups are a defect.
    pub fn woke(&mut self, deadline: Instant) {
        let now = Instant::now();
        assert!(now >= deadline, "woken {:?} too early", deadline - now);
        self.record(now - deadline);
    }

    /// Records one delay.
    pub fn record(&mut self, delay: Duration) {
        self.0.saturating_record((delay.as_nanos() as u64).max(1));
    }

    /// Adds all delays of `other`.
    ///
    /// # Panics
    /// Never: all histograms have the same bounds.
    pub fn add(&mut self, other: &Lateness) {
        self.0.add(&other.0).expect("same bounds");
    }

    /// The delay in microseconds that the share `q` (0 to 1) does not exceed.
    #[must_use]
    pub fn us(&self, q: f64) -> f64 {
        self.0.value_at_quantile(q) as f64 / 1_000.0
    }

    /// Number of recorded delays.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns whether no delay was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_delays_are_exact() {
        let mut a = Lateness::default();
        let mut b = Lateness::default();
        for us in 1..=500 {
            a.record(Duration::from_micros(us));
            b.record(Duration::from_micros(us + 500));
        }
        a.add(&b);
        assert_eq!(a.len(), 1_000);
        assert!((a.us(0.5) - 500.0).abs() < 2.0);
        assert!((a.us(0.99) - 990.0).abs() < 2.0);
    }
}
