//! `preempt`: cost of sharing a virtual processor between two computing microprocesses that
//! alternate after each quantum, compared with the same work run one after the other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kumihimo::runtime;
use kumihimo::thread;
use kumihimo_bench_kit::{CpuClock, Request, sample};

use crate::variant::Variant;

/// Size of the data that each hashes repeatedly. It fills a good part of a core's caches, so that a
/// switch evicts data.
const BYTES: usize = 256 << 10;
/// Approximate duration of one work.
const WORK: Duration = Duration::from_millis(150);
/// Number of pairs of measurements in a run.
const PAIRS: usize = 5;
/// Minimum share of the expected turns for a valid run.
const SHARE: f64 = 0.5;

/// Work of one of the pair.
#[derive(Clone)]
struct Work {
    data: Vec<u64>,
    passes: usize,
    digest: u64,
}

impl Work {
    fn new(seed: u64, passes: usize) -> Work {
        let mut word = seed;
        let data = (0..BYTES / 8)
            .map(|_| {
                word = word
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                word
            })
            .collect();
        let mut work = Work { data, passes, digest: 0 };
        work.digest = work.run();
        work
    }

    /// FNV-1a over words: computes and reads, without calls.
    fn run(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for pass in 0..self.passes as u64 {
            hash ^= pass;
            for word in &self.data {
                hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
            }
        }
        black_box(hash)
    }

    fn check(&self) {
        assert_eq!(self.run(), self.digest, "the hash of a preempted microprocess");
    }
}

pub fn preempt(request: &Request) {
    let quantum = quantum(request).expect("quantum=, in milliseconds");
    let variant = Variant::of(request);
    let passes = passes(Duration::from_millis(request.value("ms", WORK.as_millis() as u64)));
    let pair = [Work::new(1, passes), Work::new(2, passes)];
    let count = || runtime::metrics().map_or(0, |m| m.preempted + m.stood_aside);
    let mut ratios = Vec::new();
    let mut cpu = Vec::new();
    let (mut shared, mut extra, mut preempted) = (Duration::ZERO, 0.0, 0);
    let (mut before, mut before_cpu) = timed(|| uninterrupted(&pair));
    for _ in 0..request.value("pairs", PAIRS) {
        let counted = count();
        let (took, took_cpu) = timed(|| together(variant, &pair));
        preempted += count() - counted;
        // Measured before and after the pair, so that other load on the machine affects both.
        let (after, after_cpu) = timed(|| uninterrupted(&pair));
        let alone = (before + after) / 2;
        cpu.push(2.0 * took_cpu.as_secs_f64() / (before_cpu + after_cpu).as_secs_f64());
        ratios.push(took.as_secs_f64() / alone.as_secs_f64());
        extra += took.as_secs_f64() - alone.as_secs_f64();
        shared += took;
        (before, before_cpu) = (after, after_cpu);
    }
    ratios.sort_by(f64::total_cmp);
    cpu.sort_by(f64::total_cmp);
    let turns = shared.as_secs_f64() / quantum.as_secs_f64();
    let keys = format!(
        "quantum={}ms preempted:={preempted} reached:={} each_us:={:.1} cpu_ratio:={:.3}",
        quantum.as_millis(),
        u8::from(preempted as f64 >= turns * SHARE),
        extra * 1e6 / preempted.max(1) as f64,
        cpu[cpu.len() / 2],
    );
    sample("cost", ratios[ratios.len() / 2], "ratio", &keys);
}

/// The value of `quantum=5ms`, if given.
pub fn quantum(request: &Request) -> Option<Duration> {
    request.get("quantum")?.strip_suffix("ms")?.parse().ok().map(Duration::from_millis)
}

/// Number of passes for work that takes `time`.
fn passes(time: Duration) -> usize {
    const TRIES: usize = 200;
    let work = Work::new(3, TRIES);
    let start = Instant::now();
    work.check();
    (TRIES as f64 * time.as_secs_f64() / start.elapsed().as_secs_f64()).ceil() as usize
}

/// Also measures the process's CPU time, which is more meaningful on a shared machine.
fn timed(body: impl FnOnce() -> Duration) -> (Duration, Duration) {
    let cpu = CpuClock::now();
    let took = body();
    (took, cpu.elapsed())
}

/// Runs both works one after the other on a kernel thread without a VP, where no turns are counted.
fn uninterrupted(pair: &[Work; 2]) -> Duration {
    thread::blocking(|| {
        let start = Instant::now();
        pair.iter().for_each(Work::check);
        start.elapsed()
    })
}

/// Runs both works concurrently on the only VP.
fn together(variant: Variant, pair: &[Work; 2]) -> Duration {
    // Copied before the clock starts, so that their pages exist.
    let pair = pair.clone();
    let start = Instant::now();
    let both = pair.map(|work| variant.spawn(move || work.check()));
    for one in both {
        one.join().expect("no panic");
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_the_data_and_the_repetitions() {
        let work = Work::new(1, 3);
        assert_ne!(work.digest, Work::new(2, 3).digest);
        assert_ne!(work.digest, Work::new(1, 4).digest);
        work.check();
    }

    #[test]
    fn quantum_is_parsed_in_milliseconds() {
        let of = |word: &str| {
            quantum(&Request::parse(["preempt".to_owned(), word.to_owned()]).expect("a request"))
        };
        assert_eq!(of("quantum=5ms"), Some(Duration::from_millis(5)));
        assert_eq!([of("quantum=5"), of("quantum=xms"), of("quanta=5ms")], [None; 3]);
    }
}
