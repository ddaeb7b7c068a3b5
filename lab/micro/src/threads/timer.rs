//! `timer` and `latency`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kumihimo::thread;
use kumihimo_bench_kit::work::{BUSY, BUSY_ROUNDS, Dice, spin};
use kumihimo_bench_kit::{CROWD, CpuClock, Lateness, Request, per, sample};

use crate::variant::Variant;

/// Each microprocess checks once a second whether all exist, then sleeps three times.
pub fn timer(request: &Request) {
    const SLEEPS: usize = 3;
    let count = request.value("count", CROWD);
    let variant = Variant::of(request);
    let begin = Arc::new(OnceLock::new());
    let sleepers: Vec<_> = (0..count)
        .map(|i| {
            let begin = begin.clone();
            variant.spawn(move || {
                let mut dice = Dice::new(i as u64);
                let mut late = [Duration::ZERO; SLEEPS];
                let mut deadline: Instant = loop {
                    match begin.get() {
                        Some(&begin) => break begin,
                        None => thread::sleep(Duration::from_secs(1)),
                    }
                };
                for late in &mut late {
                    deadline += Duration::from_micros(100_000 + dice.below(500_000));
                    thread::sleep_until(deadline);
                    *late = Instant::now() - deadline;
                }
                late
            })
        })
        .collect();
    let at = *begin.get_or_init(|| Instant::now() + Duration::from_millis(1_200));
    thread::sleep_until(at);
    let cpu = CpuClock::now();
    let mut all = Lateness::default();
    for sleeper in sleepers {
        for late in sleeper.join().expect("no panic") {
            all.record(late);
        }
    }
    let keys = format!("sleepers:={count}");
    sample("lateness_p50", all.us(0.5), "us", &keys);
    sample("lateness_p99", all.us(0.99), "us", &keys);
    sample("cost", per(cpu.elapsed(), count * SLEEPS), "ns", &keys);
}

/// A microprocess sleeps a millisecond at a time among many that compute and yield;
/// `priority=high`: with a higher priority.
pub fn latency(request: &Request) {
    let wakes = request.value("wakes", 300);
    let priority = request.get("priority").unwrap_or("equal");
    let variant = Variant::of(request);
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..BUSY)
        .map(|i| {
            let stop = stop.clone();
            variant.spawn(move || {
                while !stop.load(Relaxed) {
                    black_box(spin(i as u64 + 1, BUSY_ROUNDS));
                    thread::yield_now();
                }
            })
        })
        .collect();
    if priority == "high" {
        let above = thread::Priority::new(thread::Priority::DEFAULT.get() + 8).expect("below 64");
        thread::current().set_priority(above);
    }
    let mut all = Lateness::default();
    for _ in 0..wakes {
        let deadline = Instant::now() + Duration::from_millis(1);
        thread::sleep_until(deadline);
        all.woke(deadline);
    }
    stop.store(true, Relaxed);
    for one in busy {
        one.join().expect("no panic");
    }
    let keys = format!("priority={priority}");
    sample("p50", all.us(0.5), "us", &keys);
    sample("p99", all.us(0.99), "us", &keys);
    sample("p999", all.us(0.999), "us", &keys);
}
