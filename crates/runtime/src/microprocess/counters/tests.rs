//! Tests of the counters' arithmetic; the runtime's own tests count whole programs.

use super::*;

static USED: AtomicBool = AtomicBool::new(false);

fn waits(of: &Waits) -> Vec<(u8, u64, u64)> {
    of.read().map(|one| (one.kind, one.count, one.nanoseconds)).collect()
}

#[test]
fn kinds_are_counted_apart_until_the_entries_are_used_up() {
    let all = Waits::new();
    assert_eq!(waits(&all), []);
    for kind in [4, 10, 4, 2, 10, 10] {
        all.count(&USED, kind, 5);
    }
    assert_eq!(waits(&all), [(4, 2, 10), (10, 3, 15), (2, 1, 5)]);
    all.count(&USED, 13, 7);
    assert_eq!(waits(&all)[3], (13, 1, 7));
    // A fifth kind shares the last entry, which is no longer of one kind.
    all.count(&USED, 17, 7);
    all.count(&USED, 13, 7);
    assert_eq!(waits(&all), [(4, 2, 10), (10, 3, 15), (2, 1, 5), (OTHERS, 3, 21)]);
    all.count(&USED, 4, 5);
    assert_eq!(waits(&all)[0], (4, 3, 15));
}

#[test]
fn negative_times_are_subtracted_and_never_shown() {
    let all = Waits::new();
    all.count(&USED, 4, 3u64.wrapping_sub(10));
    assert_eq!(waits(&all), [(4, 1, 0)]);
    all.count(&USED, 4, 10);
    assert_eq!(waits(&all), [(4, 2, 3)]);
}

#[test]
fn reset_clears_every_counter() {
    let (one, is_used) = (Counters::new(), AtomicBool::new(false));
    one.waits.count(&is_used, 4, 1);
    one.count_latency(5);
    one.count_latency(7);
    one.count_preemption();
    one.add_cpu(&is_used, 9);
    assert!(is_used.load(Ordering::Relaxed));
    let read = |of: &Counters| {
        let latency =
            (of.timed_wakes.load(Ordering::Relaxed), of.latency_ns.load(Ordering::Relaxed));
        let cpu = of.cpu_ns.load(Ordering::Relaxed);
        (waits(&of.waits).len(), latency, of.preemptions.load(Ordering::Relaxed), cpu)
    };
    assert_eq!(read(&one), (1, (2, 12), 1, 9));
    one.reset();
    assert_eq!(read(&one), (0, (0, 0), 0, 0));
}
