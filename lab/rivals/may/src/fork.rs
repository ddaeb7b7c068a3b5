//! `null-fork` and `skynet`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::Instant;

use kumihimo_bench_kit::work::{SKYNET_LEAVES, SKYNET_SUM};
use kumihimo_bench_kit::{CROWD, Memory, Request, per, sample};
use may::coroutine;
use may::go;

pub fn null_fork(request: &Request) {
    if request.wants("sequential") {
        const COUNT: usize = 200_000;
        let once = || go!(|| {}).join().expect("an empty body does not panic");
        (0..COUNT / 10).for_each(|_| once());
        let start = Instant::now();
        (0..COUNT).for_each(|_| once());
        sample("sequential", per(start.elapsed(), COUNT), "ns", "");
    }
    if request.wants("bulk") {
        let count = request.value("count", CROWD);
        for metric in ["bulk_cold", "bulk_warm"] {
            let start = Instant::now();
            bulk(count);
            let keys = format!("alive_max:={count}");
            sample(metric, per(start.elapsed(), count), "ns", &keys);
        }
    }
}

/// All coroutines wait until the last one has been created, so all are alive at once.
fn bulk(count: usize) {
    let gate = Arc::new(AtomicBool::new(false));
    let made: Vec<_> = (0..count)
        .map(|_| {
            let gate = gate.clone();
            go!(move || {
                while !gate.load(Acquire) {
                    coroutine::park();
                }
            })
        })
        .collect();
    gate.store(true, Release);
    for one in &made {
        one.coroutine().unpark();
    }
    for one in made {
        one.join().expect("no panic");
    }
}

pub fn skynet(_: &Request) {
    let start = Instant::now();
    let sum = node(0, SKYNET_LEAVES);
    let total = start.elapsed().as_secs_f64();
    assert_eq!(sum, SKYNET_SUM);
    sample("total", total, "s", "");
    sample("peak_rss", Memory::now().peak_rss as f64, "bytes", "");
}

fn node(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let share = leaves / 10;
    let children: [_; 10] =
        std::array::from_fn(|i| go!(move || node(first + i as u64 * share, share)));
    children.into_iter().map(|child| child.join().expect("no panic")).sum()
}
