//! `null-fork` and `skynet`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use kumihimo_bench_kit::work::{SKYNET_LEAVES, SKYNET_SUM};
use kumihimo_bench_kit::{CROWD, Memory, Request, per, sample};
use tokio::sync::Semaphore;

pub async fn null_fork(request: &Request) {
    if request.wants("sequential") {
        const COUNT: usize = 500_000;
        one_by_one(COUNT / 10).await;
        let start = Instant::now();
        one_by_one(COUNT).await;
        sample("sequential", per(start.elapsed(), COUNT), "ns", "");
    }
    if request.wants("bulk") {
        let count = request.value("count", CROWD);
        for metric in ["bulk_cold", "bulk_warm"] {
            let start = Instant::now();
            bulk(count).await;
            let keys = format!("alive_max:={count}");
            sample(metric, per(start.elapsed(), count), "ns", &keys);
        }
    }
}

async fn one_by_one(count: usize) {
    for _ in 0..count {
        tokio::spawn(async {}).await.expect("an empty body does not panic");
    }
}

/// All tasks wait at the gate until the last one has been created, so all are alive at once.
async fn bulk(count: usize) {
    let gate = Arc::new(Semaphore::new(0));
    let made: Vec<_> = (0..count)
        .map(|_| {
            let gate = gate.clone();
            tokio::spawn(async move {
                // A closed semaphore is an open gate: all waiters get an error at once.
                assert!(gate.acquire().await.is_err());
            })
        })
        .collect();
    gate.close();
    for one in made {
        one.await.expect("no panic");
    }
}

static ALIVE: AtomicU64 = AtomicU64::new(0);
static ALIVE_MAX: AtomicU64 = AtomicU64::new(0);

pub async fn skynet() {
    let start = Instant::now();
    let sum = tokio::spawn(node::<false>(0, SKYNET_LEAVES)).await.expect("no panic");
    let total = start.elapsed().as_secs_f64();
    assert_eq!(sum, SKYNET_SUM);
    let peak = Memory::now().peak_rss;
    // Counting takes time, so it happens in a separate pass.
    assert_eq!(tokio::spawn(node::<true>(0, SKYNET_LEAVES)).await.expect("no panic"), SKYNET_SUM);
    let keys = format!("alive_max:={}", ALIVE_MAX.load(Relaxed));
    sample("total", total, "s", &keys);
    sample("peak_rss", peak as f64, "bytes", &keys);
}

fn node<const COUNT: bool>(first: u64, leaves: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    if COUNT {
        ALIVE_MAX.fetch_max(ALIVE.fetch_add(1, Relaxed) + 1, Relaxed);
    }
    Box::pin(async move {
        let mut sum = 0;
        let share = leaves / 10;
        let children: [_; 10] = std::array::from_fn(|i| {
            let first = first + i as u64 * share;
            if share == 1 {
                if COUNT {
                    ALIVE_MAX.fetch_max(ALIVE.fetch_add(1, Relaxed) + 1, Relaxed);
                }
                // A leaf needs no box, because its type is known.
                return tokio::spawn(async move {
                    if COUNT {
                        ALIVE.fetch_sub(1, Relaxed);
                    }
                    first
                });
            }
            tokio::spawn(node::<COUNT>(first, share))
        });
        for child in children {
            sum += child.await.expect("no panic");
        }
        if COUNT {
            ALIVE.fetch_sub(1, Relaxed);
        }
        sum
    })
}
