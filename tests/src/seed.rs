//! Seeds and rounds of stress tests: one number reproduces the choices of a failed run. How much
//! long tests do.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Seed of this process: `KUMI_SEED` (a decimal number), or a random number. The same at every
/// call.
///
/// # Panics
/// If `KUMI_SEED` is not a number.
#[must_use]
pub fn seed() -> u64 {
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("KUMI_SEED") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("KUMI_SEED must be a decimal number, not {text:?}")),
        Err(_) => {
            let mut bytes = [0; 8];
            std::fs::File::open("/dev/urandom")
                .and_then(|mut file| file.read_exact(&mut bytes))
                .expect("/dev/urandom gives random bytes");
            u64::from_ne_bytes(bytes)
        }
    })
}

/// Chooses between the whole of a long test and as much of it as every run should do. `make test`
/// sets `KUMI_TEST_BRIEF` and gets `brief`; `make check`, and a test run by hand, get `whole`.
#[must_use]
pub fn extent<T>(whole: T, brief: T) -> T {
    if std::env::var_os("KUMI_TEST_BRIEF").is_some() { brief } else { whole }
}

/// Rounds of the stress test `name`: at least one, then more until `KUMI_STRESS_SECONDS` (2 if
/// unset, or 1 in a brief run) have passed. Each round has its own random numbers, derived from the
/// seed, the name and the round. Prints how to reproduce the run.
///
/// # Panics
/// If `KUMI_STRESS_SECONDS` or `KUMI_SEED` is not a number.
pub fn rounds(name: &str) -> impl Iterator<Item = Round> {
    let seconds = std::env::var("KUMI_STRESS_SECONDS").map_or_else(
        |_| extent(2, 1),
        |text| text.parse().expect("KUMI_STRESS_SECONDS must be a whole number of seconds"),
    );
    let (seed, end) = (seed(), Instant::now() + Duration::from_secs(seconds));
    // Written past libtest's capture, whose contents are lost in a crash.
    let _ = std::io::stderr().write_all(format!("\n{name}: KUMI_SEED={seed}\n").as_bytes());
    let own = name
        .bytes()
        .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (0..)
        .take_while(move |&number| number == 0 || Instant::now() < end)
        .map(move |number| Round { number, random: Random(own.wrapping_add(number)) })
}

/// One round of a stress test.
#[derive(Debug)]
pub struct Round {
    /// Counts from 0.
    pub number: u64,
    /// This round's random numbers.
    pub random: Random,
}

/// Random numbers that depend only on a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A random number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0. The bias of the remainder is irrelevant for
    /// tests.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// An independent generator, for another thread.
    pub fn split(&mut self) -> Self {
        Self(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_reproduces_its_numbers() {
        let draw = |mut random: Random| (0..8).map(|_| random.number()).collect::<Vec<_>>();
        assert_eq!(draw(Random(7)), draw(Random(7)));
        assert_ne!(draw(Random(7)), draw(Random(8)));
    }

    #[test]
    fn stress_tests_run_at_least_one_round() {
        assert_eq!(
            rounds("stress_tests_run_at_least_one_round").next().map(|round| round.number),
            Some(0)
        );
    }
}
