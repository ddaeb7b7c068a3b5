//! Histograms of times, with a relative error of 1/8 at most.

use serde::Serialize;

/// Steps in which each power of two is divided.
const STEPS: u32 = 4;

/// How often times of each length occurred.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Grows up to the longest time.
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    longest: u64,
}

/// A histogram in the page.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    count: u64,
    mean: u64,
    longest: u64,
    /// Parts in 10,000 and the time that so many do not exceed.
    percentiles: Vec<(u32, u64)>,
    /// The bars that are not empty: from, to, count.
    bars: Vec<(u64, u64, u64)>,
}

fn index(time: u64) -> usize {
    let bits = u64::BITS - time.leading_zeros();
    // Below the first power with four steps, each time has its own bar.
    if bits <= 2 {
        return time as usize;
    }
    let step = (time >> (bits - 3)) & u64::from(STEPS - 1);
    ((bits - 2) * STEPS) as usize + step as usize
}

/// The shortest time of bar `index`.
fn start(index: usize) -> u64 {
    let (power, step) = (index as u32 / STEPS, index as u64 % u64::from(STEPS));
    match power {
        0 => step,
        power => (u64::from(STEPS) + step).checked_shl(power - 1).unwrap_or(u64::MAX),
    }
}

impl Histogram {
    pub(super) fn add(&mut self, time: u64) {
        let at = index(time);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.longest = self.longest.max(time);
    }

    pub(super) fn shown(&self) -> Shown {
        let bar = |(i, &n): (usize, &u64)| (n > 0).then(|| (start(i), start(i + 1), n));
        let percentile = |part: u32| {
            // The smallest number of times that is at least this part of all.
            let wanted = (u128::from(self.count) * u128::from(part)).div_ceil(10_000) as u64;
            let mut seen = 0;
            let at = self.counts.iter().position(|n| {
                seen += n;
                seen >= wanted
            });
            (part, at.map_or(0, |i| (start(i + 1) - 1).min(self.longest)))
        };
        Shown {
            count: self.count,
            mean: self.sum.checked_div(self.count).unwrap_or(0),
            longest: self.longest,
            percentiles: [5000, 9000, 9900, 9990].into_iter().map(percentile).collect(),
            bars: self.counts.iter().enumerate().filter_map(bar).collect(),
        }
    }
}

/// The longest of many times, with what belongs to each.
#[derive(Clone, Debug)]
pub(super) struct Longest<T> {
    most: usize,
    /// The shortest one first in the heap.
    heap: std::collections::BinaryHeap<std::cmp::Reverse<(u64, T)>>,
    /// Number of all.
    pub(super) count: u64,
}

impl<T: Ord> Longest<T> {
    pub(super) fn new(most: usize) -> Longest<T> {
        Longest { most, heap: Default::default(), count: 0 }
    }

    pub(super) fn add(&mut self, time: u64, of: T) {
        self.count += 1;
        if self.heap.len() == self.most {
            if self.heap.peek().is_some_and(|least| least.0.0 >= time) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(std::cmp::Reverse((time, of)));
    }

    /// Returns them, the longest first.
    pub(super) fn into_sorted(self) -> Vec<(u64, T)> {
        self.heap.into_sorted_vec().into_iter().map(|one| one.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_join_without_gaps_and_hold_their_times() {
        for i in 0..240 {
            assert!(start(i) < start(i + 1), "{i}");
            assert_eq!((index(start(i)), index(start(i + 1) - 1)), (i, i));
        }
        assert!(index(u64::MAX) < 256);
    }

    #[test]
    fn percentiles_are_of_all_times() {
        let mut of = Histogram::default();
        (1..=1000).for_each(|time| of.add(time * 1000));
        let shown = of.shown();
        assert_eq!((shown.count, shown.mean, shown.longest), (1000, 500_500, 1_000_000));
        for ((part, time), exact) in shown.percentiles.iter().zip([500, 900, 990, 999]) {
            let exact = exact * 1000;
            assert!((exact..=exact * 5 / 4).contains(time), "{part}: {time}");
        }
        assert_eq!(shown.bars.iter().map(|bar| bar.2).sum::<u64>(), 1000);
        assert_eq!(Histogram::default().shown().percentiles[0], (5000, 0));
    }

    #[test]
    fn longest_are_kept() {
        let mut of = Longest::new(3);
        [5, 1, 9, 7, 7, 2].into_iter().zip(0..).for_each(|(time, i)| of.add(time, i));
        assert_eq!(of.count, 6);
        assert_eq!(of.into_sorted(), [(9, 2), (7, 4), (7, 3)]);
    }
}
