//! Work inside the loops, and its expected results.

/// Parameters and result of a prime sieve made of filter processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sieve {
    /// Last number that the generator sends; it sends 2, 3, 4, ...
    pub limit: u32,
    /// Number of primes up to the limit, with one filter each.
    pub primes: usize,
    /// Sum of the primes.
    pub sum: u64,
}

/// The sieve in P0: the 125 primes up to 700, and a generator.
pub const PRIMES_700: Sieve = Sieve { limit: 700, primes: 125, sum: 39_612 };

/// The first 2,000 primes.
pub const PRIMES_2000: Sieve = Sieve { limit: 17_389, primes: 2_000, sum: 16_274_627 };

/// The sieve with the name `part`.
///
/// # Panics
/// If there is no such sieve.
#[must_use]
pub fn sieve(part: &str) -> Sieve {
    match part {
        "primes700" => PRIMES_700,
        "primes2000" => PRIMES_2000,
        _ => panic!("{part}: unknown sieve"),
    }
}

impl Sieve {
    /// Number of messages between filters, without end marks.
    #[must_use]
    pub fn messages(&self) -> u64 {
        let mut primes: Vec<u32> = Vec::new();
        let mut messages = 0;
        for n in 2..=self.limit {
            match primes.iter().position(|p| n % p == 0) {
                Some(filter) => messages += filter as u64 + 1,
                None => {
                    primes.push(n);
                    messages += primes.len() as u64;
                }
            }
        }
        messages
    }
}

/// Number of leaves of the skynet tree.
pub const SKYNET_LEAVES: u64 = 1_000_000;
/// Number of nodes of the skynet tree, including leaves.
pub const SKYNET_NODES: u64 = 1_111_111;
/// Sum of the numbers of all leaves.
pub const SKYNET_SUM: u64 = 499_999_500_000;

/// Rounds of work while holding the lock, in `mutex`.
pub const INSIDE: u32 = 10;
/// Rounds of work without the lock, in `mutex`.
pub const OUTSIDE: u32 = 40;
/// Number of contenders in `mutex`.
pub const CONTENDERS: usize = 64;

/// Computes `rounds` dependent steps of a few cycles each, which no compiler can shorten.
#[inline]
#[must_use]
pub fn spin(mut x: u64, rounds: u32) -> u64 {
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// Rounds of [`spin`] between two readings of the clock in a timed computation: a few microseconds,
/// so that most of the time is computation and not the system call.
pub const STEP: u32 = 2_000;

/// Number of busy microprocesses in `latency`.
pub const BUSY: usize = 1_000;
/// Rounds of [`spin`] between two yields of a busy microprocess: about 10 us on a 4 GHz machine.
pub const BUSY_ROUNDS: u32 = 7_500;

/// A sequence of pseudo-random numbers, the same for every contender (xorshift64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A separate sequence for each `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Dice(spin(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, 4))
    }

    /// The next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = spin(self.0, 1);
        (self.0 >> 11) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sieves_have_the_declared_primes_and_messages() {
        for s in [PRIMES_700, PRIMES_2000] {
            let primes: Vec<u64> = (2..=u64::from(s.limit))
                .filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0))
                .collect();
            assert_eq!(primes.len(), s.primes);
            assert_eq!(primes.iter().sum::<u64>(), s.sum);
        }
        // P0 counts more than 9,000 messages: these, an end mark for each filter, and one after the
        // last.
        assert_eq!(PRIMES_700.messages(), 8_929);
    }

    #[test]
    fn skynet_computes_the_sum() {
        assert_eq!((0..SKYNET_LEAVES).sum::<u64>(), SKYNET_SUM);
        assert_eq!((0..=6).map(|level| 10u64.pow(level)).sum::<u64>(), SKYNET_NODES);
    }
}
