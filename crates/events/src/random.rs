//! Pseudo-random numbers by SplitMix64, for intervals and choices that must not follow a period of
//! the program. Async-signal-safe.

/// Added to the state for each number.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the number that follows from `seed`, as a hash of it.
#[must_use]
pub fn hash(seed: u64) -> u64 {
    let mut hash = seed.wrapping_add(INCREMENT);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Returns an interval between half and one and a half of `mean`, which is not 0.
#[must_use]
pub fn interval(seed: u64, mean: u64) -> u64 {
    mean / 2 + hash(seed) % mean
}

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn draw(&mut self) -> u64 {
        let number = hash(self.0);
        self.0 = self.0.wrapping_add(INCREMENT);
        number
    }

    /// Returns a number from 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_that_of_the_reference() {
        // The first numbers of Vigna's splitmix64.c from the state 1234567.
        let mut random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        let reference =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(drawn, reference);
    }

    #[test]
    fn intervals_vary_around_their_mean() {
        const MEAN: u64 = 5_000_000;
        let all: Vec<u64> = (0..1000).map(|n| interval(n * 1_000_003, MEAN)).collect();
        assert!(all.iter().all(|one| (MEAN / 2..MEAN / 2 * 3).contains(one)));
        let mean = all.iter().sum::<u64>() / 1000;
        assert!(mean.abs_diff(MEAN) < MEAN / 20, "{mean}");
    }

    #[test]
    fn choices_are_below_their_bound() {
        let mut random = Random::new(7);
        let mut seen = [0; 3];
        (0..300).for_each(|_| seen[random.below(3)] += 1);
        assert!(seen.iter().all(|n| *n > 60), "{seen:?}");
        assert!((0..300).all(|_| (0.0..1.0).contains(&random.fraction())));
    }
}
