//! Tests of the counters' arithmetic; the runtime's own tests count whole programs.

use super::*;

struct Counted {
    kind: AtomicU8,
    count: AtomicU32,
    carries: AtomicU32,
    nanoseconds: AtomicU64,
    further: FurtherWaits,
}

impl Counted {
    fn new() -> Counted {
        Counted {
            kind: AtomicU8::new(NO_WAITS),
            count: AtomicU32::new(0),
            carries: AtomicU32::new(0),
            nanoseconds: AtomicU64::new(0),
            further: FurtherWaits::new(),
        }
    }

    fn counters(&self) -> WaitCounters<'_> {
        let Counted { kind, count, carries, nanoseconds, further } = self;
        WaitCounters { kind, count, carries, nanoseconds, further }
    }

    fn count(&self, kind: u8, nanoseconds: u64) {
        self.counters().count(kind, nanoseconds);
    }
}

fn waits(of: &Counted) -> Vec<(u8, u64, u64)> {
    of.counters().read().map(|one| (one.kind, one.count, one.nanoseconds)).collect()
}

#[test]
fn kinds_are_counted_apart_until_the_entries_are_used_up() {
    let all = Counted::new();
    assert_eq!(waits(&all), []);
    for kind in [4, 10, 4, 2, 10, 10] {
        all.count(kind, 5);
    }
    assert_eq!(waits(&all), [(4, 2, 10), (10, 3, 15), (2, 1, 5)]);
    all.count(13, 7);
    assert_eq!(waits(&all)[3], (13, 1, 7));
    // A fifth kind shares the last entry, which is no longer of one kind.
    all.count(17, 7);
    all.count(13, 7);
    assert_eq!(waits(&all), [(4, 2, 10), (10, 3, 15), (2, 1, 5), (OTHERS, 3, 21)]);
    all.count(4, 5);
    assert_eq!(waits(&all)[0], (4, 3, 15));
}

#[test]
fn negative_times_are_subtracted_and_never_shown() {
    let all = Counted::new();
    all.count(4, 3u64.wrapping_sub(10));
    assert_eq!(waits(&all), [(4, 1, 0)]);
    all.count(4, 10);
    assert_eq!(waits(&all), [(4, 2, 3)]);
}

#[test]
fn waits_of_an_earlier_life_are_not_seen() {
    let all = Counted::new();
    for kind in [4, 10, 2] {
        all.count(kind, 5);
    }
    all.kind.store(NO_WAITS, Ordering::Relaxed);
    assert_eq!(waits(&all), []);
    all.count(10, 1);
    all.count(4, 2);
    assert_eq!(waits(&all), [(10, 1, 1), (4, 1, 2)]);
}

#[test]
fn number_of_waits_exceeds_32_bits() {
    let all = Counted::new();
    all.count(4, 1);
    all.count.store(u32::MAX, Ordering::Relaxed);
    all.count(4, 1);
    assert_eq!(waits(&all), [(4, 1 << 32, 2)]);
    all.count(4, 1);
    assert_eq!(waits(&all), [(4, (1 << 32) + 1, 3)]);
}

#[test]
fn reset_clears_every_other_counter() {
    let (one, is_used) = (Counters::new(), AtomicBool::new(false));
    one.count_latency(5);
    one.count_latency(7);
    one.count_preemption();
    one.add_cpu(&is_used, 9);
    assert!(is_used.load(Ordering::Relaxed));
    let read = |of: &Counters| {
        let latency =
            (of.timed_wakes.load(Ordering::Relaxed), of.latency_ns.load(Ordering::Relaxed));
        (latency, of.preemptions.load(Ordering::Relaxed), of.cpu_ns.load(Ordering::Relaxed))
    };
    assert_eq!(read(&one), ((2, 12), 1, 9));
    one.reset();
    assert_eq!(read(&one), ((0, 0), 0, 0));
}
