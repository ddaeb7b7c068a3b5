use super::*;

/// Ratios of two measurements of the same quantity, each with `noise` of uniform disturbance.
fn ratios_of_equal_builds(seed: u64, pairs: usize, noise: f64) -> Vec<f64> {
    let mut random = Random(seed);
    let mut measure = || 100.0 * (1.0 + noise * random.below(1_000_000) as f64 / 1e6);
    (0..pairs).map(|_| measure() / measure()).collect()
}

#[test]
fn median_of_odd_and_even_counts() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
}

#[test]
fn interval_of_nothing_is_none() {
    assert_eq!(bootstrap(&[]), None);
}

#[test]
fn interval_of_constant_samples_is_a_point() {
    let interval = bootstrap(&[1.25; 15]).unwrap();
    assert_eq!((interval.low, interval.median, interval.high), (1.25, 1.25, 1.25));
    assert_eq!(interval.width(), 0.0);
}

#[test]
fn interval_of_known_samples_has_the_ends_of_the_order_statistics() {
    // The median of a resample of 21 distinct values is at most the k-th of them with probability
    // P(Binomial(21, k/21) >= 11): 0.018 for the 6th and 0.056 for the 7th. The 2.5 % point is the
    // 7th value and, by symmetry, the 97.5 % point the 15th.
    let samples: Vec<f64> = (1..=21).map(f64::from).collect();
    let interval = bootstrap(&samples).unwrap();
    assert_eq!((interval.low, interval.median, interval.high), (7.0, 11.0, 15.0));
}

#[test]
fn order_of_samples_moves_the_interval_by_resampling_error_only() {
    let samples = ratios_of_equal_builds(7, 30, 0.1);
    let reversed: Vec<f64> = samples.iter().rev().copied().collect();
    let (one, other) = (bootstrap(&samples).unwrap(), bootstrap(&reversed).unwrap());
    assert_eq!(one.median, other.median);
    assert!((one.low - other.low).abs() < 0.01 && (one.high - other.high).abs() < 0.01);
}

#[test]
fn same_samples_give_the_same_interval() {
    let samples = ratios_of_equal_builds(3, 15, 0.2);
    assert_eq!(bootstrap(&samples), bootstrap(&samples));
}

#[test]
fn more_pairs_narrow_the_interval() {
    let width = |pairs| bootstrap(&ratios_of_equal_builds(5, pairs, 0.2)).unwrap().width();
    assert!(width(60) < width(15));
}

#[test]
fn interval_of_equal_builds_contains_one() {
    for noise in [0.02, 0.1, 0.3] {
        let contains = (0..400)
            .filter(|&seed| {
                let interval = bootstrap(&ratios_of_equal_builds(seed, 15, noise)).unwrap();
                interval.low <= 1.0 && 1.0 <= interval.high
            })
            .count();
        // 95 % of 400 is 380; four standard deviations (18) below that is where chance ends.
        assert!(contains >= 362, "{contains} of 400 at a noise of {noise}");
    }
}

#[test]
fn interval_of_a_slower_build_excludes_one() {
    let slower: Vec<f64> = ratios_of_equal_builds(11, 15, 0.05).iter().map(|r| r * 1.2).collect();
    assert!(bootstrap(&slower).unwrap().low > 1.1);
}

#[test]
fn random_numbers_stay_below_their_bound() {
    let mut random = Random(1);
    let mut seen = [0; 7];
    (0..7_000).for_each(|_| seen[random.below(7)] += 1);
    assert!(seen.iter().all(|&count| (800..1_200).contains(&count)), "{seen:?}");
}
