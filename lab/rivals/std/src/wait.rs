//! Benchmarks with waiting kernel threads: `parked`, `timer`, `latency`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::work::{BUSY, BUSY_ROUNDS, Dice, spin};
use kumihimo_bench_kit::{CpuClock, Lateness, Memory, Request, per, sample};

/// Number of threads instead of 100,000, because of the limits of 32,768 thread IDs and 65,530
/// mappings.
const THREADS: usize = 10_000;

pub fn parked(request: &Request) {
    let count = request.value("count", THREADS);
    let stack = request.get("stack").unwrap_or("default");
    let used = request.get("part") == Some("parked_used");
    let stand = Barrier::new(count + 1);
    let gate = RwLock::new(());
    let before = Memory::now();
    let closed = gate.write().expect("not poisoned");
    thread::scope(|scope| {
        for i in 0..count {
            let builder = match stack {
                "min" => thread::Builder::new().stack_size(16 << 10),
                _ => thread::Builder::new(),
            };
            let (stand, gate) = (&stand, &gate);
            let body = move || {
                let kept = black_box(Box::new(i));
                if used {
                    black_box((0..200).map(Box::new).collect::<Vec<_>>());
                }
                stand.wait();
                drop(gate.read());
                assert_eq!(*kept, i);
            };
            builder.spawn_scoped(scope, body).expect("thread limit");
        }
        stand.wait();
        // The last threads may still be between the barrier and the gate.
        thread::sleep(Duration::from_millis(200));
        let (rss, kernel) = Memory::now().each_since(&before, count);
        let keys = format!("count={count} stack={stack} alive_max:={count}");
        if used {
            sample("parked_used", rss, "bytes", &keys);
        } else {
            sample("rss", rss, "bytes", &keys);
            sample("kernel", kernel, "bytes", &keys);
        }
        drop(closed);
    });
}

/// Each thread checks once a second whether all exist, then sleeps three times.
pub fn timer(request: &Request) {
    const SLEEPS: usize = 3;
    let count = request.value("count", THREADS);
    let begin = OnceLock::new();
    let mut cpu = CpuClock::now();
    let mut all = Lateness::default();
    thread::scope(|scope| {
        let sleepers: Vec<_> = (0..count)
            .map(|i| {
                let begin = &begin;
                let body = move || {
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
                        thread::sleep(deadline.saturating_duration_since(Instant::now()));
                        *late = Instant::now() - deadline;
                    }
                    late
                };
                thread::Builder::new().stack_size(16 << 10).spawn_scoped(scope, body).expect("thread limit")
            })
            .collect();
        let at: Instant = *begin.get_or_init(|| Instant::now() + Duration::from_millis(1_200));
        thread::sleep(at.saturating_duration_since(Instant::now()));
        cpu = CpuClock::now();
        for sleeper in sleepers {
            for late in sleeper.join().expect("no panic") {
                all.record(late);
            }
        }
    });
    let keys = format!("sleepers:={count}");
    sample("lateness_p50", all.us(0.5), "us", &keys);
    sample("lateness_p99", all.us(0.99), "us", &keys);
    sample("cost", per(cpu.elapsed(), count * SLEEPS), "ns", &keys);
}

/// One thread sleeps a millisecond at a time among many that compute and yield.
pub fn latency(request: &Request) {
    let wakes = request.value("wakes", 300);
    let stop = AtomicBool::new(false);
    let mut all = Lateness::default();
    thread::scope(|scope| {
        for i in 0..BUSY {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    black_box(spin(i as u64 + 1, BUSY_ROUNDS));
                    thread::yield_now();
                }
            });
        }
        for _ in 0..wakes {
            let deadline = Instant::now() + Duration::from_millis(1);
            thread::sleep(Duration::from_millis(1));
            all.woke(deadline);
        }
        stop.store(true, Relaxed);
    });
    sample("p50", all.us(0.5), "us", "priority=equal");
    sample("p99", all.us(0.99), "us", "priority=equal");
    sample("p999", all.us(0.999), "us", "priority=equal");
}
