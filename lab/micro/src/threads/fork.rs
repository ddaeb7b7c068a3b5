//! `null-fork` and `skynet`.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::Instant;

use kumihimo::thread;
use kumihimo_bench_kit::work::{SKYNET_LEAVES, SKYNET_SUM};
use kumihimo_bench_kit::{CROWD, Memory, Request, per, sample};

use crate::variant::Variant;

pub fn null_fork(request: &Request) {
    let variant = Variant::of(request);
    if request.wants("sequential") {
        const COUNT: usize = 500_000;
        one_by_one(variant, COUNT / 10);
        let start = Instant::now();
        one_by_one(variant, COUNT);
        sample("sequential", per(start.elapsed(), COUNT), "ns", "");
    }
    if request.wants("bulk") {
        let count = request.value("count", CROWD);
        for metric in ["bulk_cold", "bulk_warm"] {
            let start = Instant::now();
            bulk(variant, count);
            let keys = format!("alive_max:={count}");
            sample(metric, per(start.elapsed(), count), "ns", &keys);
        }
    }
}

pub fn one_by_one(variant: Variant, count: usize) {
    for _ in 0..count {
        variant.spawn(|| {}).join().expect("an empty body does not panic");
    }
}

/// All microprocesses wait at the gate until the last one has been created, so all are alive at
/// once.
pub fn bulk(variant: Variant, count: usize) {
    let gate = Arc::new(AtomicBool::new(false));
    let made: Vec<_> = (0..count)
        .map(|_| {
            let gate = gate.clone();
            variant.spawn(move || {
                while !gate.load(Acquire) {
                    thread::park();
                }
            })
        })
        .collect();
    gate.store(true, Release);
    for one in &made {
        one.thread().unpark();
    }
    for one in made {
        one.join().expect("no panic");
    }
}

static ALIVE: AtomicU64 = AtomicU64::new(0);
static ALIVE_MAX: AtomicU64 = AtomicU64::new(0);

pub fn skynet(request: &Request) {
    let order = request.get("order").unwrap_or("child");
    let variant = Variant::of(request).child_first(order == "child");
    let start = Instant::now();
    let sum = tree::<false>(variant);
    let total = start.elapsed().as_secs_f64();
    assert_eq!(sum, SKYNET_SUM);
    let peak = Memory::now().peak_rss;
    // Counting takes time, so it happens in a separate pass.
    assert_eq!(tree::<true>(variant), SKYNET_SUM);
    let keys = format!("order={order} alive_max:={}", ALIVE_MAX.load(Relaxed));
    sample("total", total, "s", &keys);
    sample("peak_rss", peak as f64, "bytes", &keys);
}

/// Runs the whole tree once, for other benchmarks.
pub fn skynet_once(variant: Variant) {
    assert_eq!(tree::<false>(variant), SKYNET_SUM);
}

fn tree<const COUNT: bool>(variant: Variant) -> u64 {
    variant.spawn(move || node::<COUNT>(variant, 0, SKYNET_LEAVES)).join().expect("no panic")
}

fn node<const COUNT: bool>(variant: Variant, first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let share = leaves / 10;
    let children: [_; 10] = std::array::from_fn(|i| {
        if COUNT {
            ALIVE_MAX.fetch_max(ALIVE.fetch_add(1, Relaxed) + 1, Relaxed);
        }
        variant.spawn(move || {
            let sum = node::<COUNT>(variant, first + i as u64 * share, share);
            if COUNT {
                ALIVE.fetch_sub(1, Relaxed);
            }
            sum
        })
    });
    children.into_iter().map(|child| child.join().expect("no panic")).sum()
}
