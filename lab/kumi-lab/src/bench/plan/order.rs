//! Order of slices among contenders that are alive at the same time.

use kumihimo_bench_kit::work::Dice;

/// A random order for each round, drawn from a seed: a contender that always followed the same
/// other one would not be measured independently.
pub struct Order(Dice);

impl Order {
    pub fn new(seed: u64) -> Self {
        Order(Dice::new(seed))
    }

    /// All numbers below `count`, each once.
    pub fn round(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for left in (1..count).rev() {
            all.swap(left, self.0.below(left as u64 + 1) as usize);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_permutations_that_differ_and_repeat_for_a_seed() {
        let mut order = Order::new(1);
        let rounds: Vec<_> = (0..20).map(|_| order.round(5)).collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert!(rounds.iter().any(|round| *round != rounds[0]));
        let mut same = Order::new(1);
        assert_eq!(rounds, (0..20).map(|_| same.round(5)).collect::<Vec<_>>());
        assert!(order.round(0).is_empty());
    }
}
