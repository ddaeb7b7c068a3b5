//! `preempt`: two computing kernel threads share a core, compared with the same work run one after
//! the other.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::{Request, sample};

/// As in lab/micro/src/scheduling/preempt.rs.
const WORDS: usize = (256 << 10) / 8;
const PAIRS: usize = 5;

fn data(seed: u64) -> Vec<u64> {
    let mut word = seed;
    (0..WORDS)
        .map(|_| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word
        })
        .collect()
}

fn hash(data: &[u64], passes: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for pass in 0..passes {
        hash ^= pass;
        for word in data {
            hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        }
    }
    black_box(hash)
}

pub fn preempt(request: &Request) {
    let ms: u64 = request.value("ms", 150);
    let pair = [data(1), data(2)];
    let start = Instant::now();
    black_box(hash(&pair[0], 200));
    let passes = (200.0 * ms as f64 / 1e3 / start.elapsed().as_secs_f64()).ceil() as u64;
    let right = pair.each_ref().map(|data| hash(data, passes));
    let alone = || {
        let start = Instant::now();
        assert_eq!(pair.each_ref().map(|data| hash(data, passes)), right);
        start.elapsed()
    };
    let together = || {
        let start = Instant::now();
        thread::scope(|s| {
            for (data, right) in pair.iter().zip(right) {
                s.spawn(move || assert_eq!(hash(data, passes), right));
            }
        });
        start.elapsed()
    };
    let mut ratios = Vec::new();
    let mut before: Duration = alone();
    for _ in 0..request.value("pairs", PAIRS) {
        let took = together();
        let after = alone();
        ratios.push(2.0 * took.as_secs_f64() / (before + after).as_secs_f64());
        before = after;
    }
    ratios.sort_by(f64::total_cmp);
    sample("cost", ratios[ratios.len() / 2], "ratio", "quantum=kernel");
}
