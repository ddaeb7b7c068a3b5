//! Statistics of paired ratios: the median, and its bootstrap interval.

#[cfg(test)]
mod tests;

/// Number of resamples for an interval. More of them change its ends by less than 0.1 %.
const RESAMPLES: usize = 4_000;
/// Probability mass left outside each end of a 95 % interval.
const TAIL: f64 = 0.025;
/// Seed of every interval, so that the same samples always give the same interval.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The median of some ratios, and the interval that holds the true median with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Median of the samples themselves.
    pub median: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Distance between the ends.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// The median, for an even number of values the mean of the middle two. `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => None,
        1 => Some(sorted[half]),
        _ => Some(f64::midpoint(sorted[half - 1], sorted[half])),
    }
}

/// Percentile bootstrap of the median (Efron and Tibshirani 1993, chapter 13). `None` for no
/// values.
pub fn bootstrap(values: &[f64]) -> Option<Interval> {
    let median = median(values)?;
    let mut random = Random(SEED);
    let mut resample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            resample.iter_mut().for_each(|place| *place = values[random.below(values.len())]);
            resample.sort_by(f64::total_cmp);
            middle(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = (TAIL * RESAMPLES as f64) as usize;
    Some(Interval { low: medians[tail], median, high: medians[RESAMPLES - 1 - tail] })
}

/// The splitmix64 sequence (Steele, Lea and Flood 2014).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is uniform except for a bias of bound / 2^64.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
