//! Median and extremes of a small number of samples.

/// Summary of the samples of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
}

/// `None` without samples. The median of an even number is the mean of the middle two.
pub fn summary(samples: &[f64]) -> Option<Summary> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    };
    Some(Summary { median, min, max, runs: sorted.len() })
}

/// Quartiles by linear interpolation; `None` without samples.
pub fn quartiles(samples: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some([0.25, 0.5, 0.75].map(|share| {
        let at = share * last as f64;
        let below = sorted[at.floor() as usize];
        below + (sorted[at.ceil() as usize] - below) * at.fract()
    }))
}

/// Interval that contains the median of the distribution of the samples with a probability of at
/// least 95 %, whatever the distribution: two of the sorted samples. `None` for fewer than six.
pub fn median_interval(samples: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The number of samples below the median is binomial.
    let n = sorted.len();
    let mut probability = 0.5_f64.powi(n as i32);
    let mut tail = 0.0;
    let mut outside = 0;
    while outside < n && tail + probability <= 0.025 {
        tail += probability;
        probability *= (n - outside) as f64 / (outside + 1) as f64;
        outside += 1;
    }
    (outside > 0).then(|| (sorted[outside - 1], sorted[n - outside]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_no_samples_is_none() {
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn quartiles_of_few_samples_are_defined() {
        assert_eq!(quartiles(&[]), None);
        assert_eq!(quartiles(&[7.0]), Some([7.0; 3]));
        assert_eq!(quartiles(&[5.0, 1.0, 2.0, 4.0, 3.0]), Some([2.0, 3.0, 4.0]));
        assert_eq!(quartiles(&[1.0, 2.0]), Some([1.25, 1.5, 1.75]));
    }

    #[test]
    fn interval_of_the_median_leaves_out_the_tails() {
        let samples = |n: usize| (1..=n).map(|one| one as f64).collect::<Vec<_>>();
        assert_eq!(median_interval(&samples(5)), None);
        assert_eq!(median_interval(&samples(6)), Some((1.0, 6.0)));
        // Tables of the sign test: 5 and 9 samples outside on each side of 15 and 25.
        assert_eq!(median_interval(&samples(15)), Some((4.0, 12.0)));
        assert_eq!(median_interval(&samples(25)), Some((8.0, 18.0)));
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        let odd = summary(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.runs), (2.0, 1.0, 3.0, 3));
        let even = summary(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.median, even.runs), (2.5, 4));
    }
}
