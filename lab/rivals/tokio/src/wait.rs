//! Benchmarks with waiting tasks: `parked`, `timer`, `latency`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kumihimo_bench_kit::work::{BUSY, BUSY_ROUNDS, Dice, spin};
use kumihimo_bench_kit::{CROWD, CpuClock, Lateness, Memory, Request, per, sample};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

pub async fn parked(request: &Request) {
    let count = request.value("count", CROWD);
    let used = request.get("part") == Some("parked_used");
    let gate = Arc::new(Semaphore::new(0));
    let standing = Arc::new(AtomicUsize::new(0));
    let mut made = Vec::with_capacity(count);
    // Allocated before for all contenders: the list of handles is not part of the cost.
    made.resize_with(count, || None);
    let before = Memory::now();
    for (i, place) in made.iter_mut().enumerate() {
        let (gate, standing) = (gate.clone(), standing.clone());
        *place = Some(tokio::spawn(async move {
            let kept = black_box(Box::new(i));
            if used {
                black_box((0..200).map(Box::new).collect::<Vec<_>>());
            }
            standing.fetch_add(1, Relaxed);
            assert!(gate.acquire().await.is_err());
            assert_eq!(*kept, i);
        }));
    }
    while standing.load(Relaxed) < count {
        yield_now().await;
    }
    let (rss, kernel) = Memory::now().each_since(&before, count);
    let keys = format!("count={count} alive_max:={count}");
    if used {
        sample("parked_used", rss, "bytes", &keys);
    } else {
        sample("rss", rss, "bytes", &keys);
        sample("kernel", kernel, "bytes", &keys);
    }
    gate.close();
    for one in made.into_iter().flatten() {
        one.await.expect("no panic");
    }
}

/// Each task checks once a second whether all exist, then sleeps three times.
pub async fn timer(request: &Request) {
    const SLEEPS: usize = 3;
    let count = request.value("count", CROWD);
    let begin = Arc::new(OnceLock::new());
    let sleepers: Vec<_> = (0..count)
        .map(|i| {
            let begin = begin.clone();
            tokio::spawn(async move {
                let mut dice = Dice::new(i as u64);
                let mut late = [Duration::ZERO; SLEEPS];
                let mut deadline: Instant = loop {
                    match begin.get() {
                        Some(&begin) => break begin,
                        None => sleep(Duration::from_secs(1)).await,
                    }
                };
                for late in &mut late {
                    deadline += Duration::from_micros(100_000 + dice.below(500_000));
                    sleep_until(deadline).await;
                    *late = Instant::now() - deadline;
                }
                late
            })
        })
        .collect();
    let at = *begin.get_or_init(|| Instant::now() + Duration::from_millis(1_200));
    sleep_until(at).await;
    let cpu = CpuClock::now();
    let mut all = Lateness::default();
    for sleeper in sleepers {
        for late in sleeper.await.expect("no panic") {
            all.record(late);
        }
    }
    let keys = format!("sleepers:={count}");
    sample("lateness_p50", all.us(0.5), "us", &keys);
    sample("lateness_p99", all.us(0.99), "us", &keys);
    sample("cost", per(cpu.elapsed(), count * SLEEPS), "ns", &keys);
}

/// One task sleeps a millisecond at a time among many that compute and yield.
pub async fn latency(request: &Request) {
    let wakes = request.value("wakes", 300);
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..BUSY)
        .map(|i| {
            let stop = stop.clone();
            tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    black_box(spin(i as u64 + 1, BUSY_ROUNDS));
                    yield_now().await;
                }
            })
        })
        .collect();
    let mut all = Lateness::default();
    for _ in 0..wakes {
        let deadline = Instant::now() + Duration::from_millis(1);
        sleep_until(deadline).await;
        all.woke(deadline.into_std());
    }
    stop.store(true, Relaxed);
    for one in busy {
        one.await.expect("no panic");
    }
    sample("p50", all.us(0.5), "us", "priority=equal");
    sample("p99", all.us(0.99), "us", "priority=equal");
    sample("p999", all.us(0.999), "us", "priority=equal");
}
