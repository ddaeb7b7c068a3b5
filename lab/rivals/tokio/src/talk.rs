//! Benchmarks with communication between tasks: `yield`, `message`, `sieve`, `mutex`.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use kumihimo_bench_kit::work::{self, CONTENDERS, INSIDE, OUTSIDE, spin};
use kumihimo_bench_kit::{Request, per, sample};
use tokio::sync::{Barrier, Mutex, mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};

/// Two tasks for each worker, which take turns.
pub async fn switch(request: &Request) {
    const ROUNDS: usize = 1_000_000;
    let all = Arc::new(Barrier::new(2 * request.vps));
    let yielders: Vec<_> = (0..2 * request.vps)
        .map(|_| {
            let all = all.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS / 10 {
                    yield_now().await;
                }
                all.wait().await;
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    yield_now().await;
                }
                start.elapsed()
            })
        })
        .collect();
    let mut slowest = std::time::Duration::ZERO;
    for yielder in yielders {
        slowest = slowest.max(yielder.await.expect("no panic"));
    }
    sample("switch", per(slowest, 2 * ROUNDS), "ns", "");
}

/// Two channels with a capacity of one; with `design=oneshot`, a reply channel in each request.
pub async fn message(request: &Request) {
    const ROUNDS: usize = 300_000;
    if request.get("design") == Some("oneshot") {
        let (ask, mut asked) = mpsc::channel::<(usize, oneshot::Sender<usize>)>(1);
        tokio::spawn(async move {
            while let Some((n, reply)) = asked.recv().await {
                reply.send(n + 1).expect("the client waits");
            }
        });
        let exchange = async |rounds: usize| {
            for i in 0..rounds {
                let (reply, replied) = oneshot::channel();
                assert!(ask.send((i, reply)).await.is_ok());
                assert_eq!(replied.await, Ok(i + 1));
            }
        };
        exchange(ROUNDS / 10).await;
        let start = Instant::now();
        exchange(ROUNDS).await;
        sample("roundtrip", per(start.elapsed(), ROUNDS), "ns", "");
        return;
    }
    let (ask, mut asked) = mpsc::channel::<usize>(1);
    let (answer, mut answered) = mpsc::channel::<usize>(1);
    tokio::spawn(async move {
        while let Some(n) = asked.recv().await {
            answer.send(n + 1).await.expect("the client waits");
        }
    });
    let mut exchange = async |rounds: usize| {
        for i in 0..rounds {
            ask.send(i).await.expect("the server lives");
            assert_eq!(answered.recv().await, Some(i + 1));
        }
    };
    exchange(ROUNDS / 10).await;
    let start = Instant::now();
    exchange(ROUNDS).await;
    sample("roundtrip", per(start.elapsed(), ROUNDS), "ns", "");
}

/// The paper's chain: a generator, and a filter for each prime, created by the preceding filter.
/// Tokio has no rendezvous channel; a capacity of one comes closest.
pub async fn sieve(request: &Request) {
    for part in ["primes700", "primes2000"] {
        if !request.wants(part) {
            continue;
        }
        let sieve = work::sieve(part);
        let rounds = if sieve.primes < 1_000 { 30 } else { 1 };
        let run = async || {
            let (send, receive) = mpsc::channel(1);
            let first = filter(receive);
            let generator = tokio::spawn(async move {
                for n in 2..=sieve.limit {
                    send.send(n).await.expect("the first filter lives");
                }
            });
            generator.await.expect("no panic");
            assert_eq!(first.await.expect("no panic"), (sieve.primes, sieve.sum));
        };
        if rounds > 1 {
            run().await;
        }
        let start = Instant::now();
        for _ in 0..rounds {
            run().await;
        }
        sample(part, start.elapsed().as_secs_f64() / rounds as f64, "s", "");
    }
}

type Found = (usize, u64);

fn filter(from: mpsc::Receiver<u32>) -> JoinHandle<Found> {
    // Without the box, the type would contain itself.
    let body: Pin<Box<dyn Future<Output = Found> + Send>> = Box::pin(sift(from));
    tokio::spawn(body)
}

async fn sift(mut from: mpsc::Receiver<u32>) -> Found {
    let prime = from.recv().await.expect("a filter is made when there is a prime for it");
    let mut next: Option<(mpsc::Sender<u32>, JoinHandle<Found>)> = None;
    while let Some(n) = from.recv().await {
        if n % prime != 0 {
            let (send, _) = next.get_or_insert_with(|| {
                let (send, receive) = mpsc::channel(1);
                (send, filter(receive))
            });
            send.send(n).await.expect("the next filter lives");
        }
    }
    let Some((send, filter)) = next else {
        return (1, u64::from(prime));
    };
    drop(send);
    let (primes, sum) = filter.await.expect("no panic");
    (primes + 1, sum + u64::from(prime))
}

/// `lock=tokio`: waiters yield their worker. `lock=std`: Tokio's own advice for sections without an
/// await.
pub async fn mutex(request: &Request) {
    let rounds: usize = request.value("rounds", 20_000);
    let lock = request.get("lock").unwrap_or("tokio").to_owned();
    let total = CONTENDERS * rounds;
    let gate = Arc::new(Barrier::new(CONTENDERS + 1));
    let tokios = Arc::new(Mutex::new((0u64, 1u64)));
    let stds = Arc::new(std::sync::Mutex::new((0u64, 1u64)));
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|seed| {
            let (gate, tokios, stds) = (gate.clone(), tokios.clone(), stds.clone());
            let use_std = lock == "std";
            tokio::spawn(async move {
                gate.wait().await;
                let mut own = seed as u64 + 1;
                if use_std {
                    for _ in 0..rounds {
                        let mut inside = stds.lock().expect("not poisoned");
                        inside.0 += 1;
                        inside.1 = spin(inside.1, INSIDE);
                        drop(inside);
                        own = spin(own, OUTSIDE);
                    }
                } else {
                    for _ in 0..rounds {
                        let mut inside = tokios.lock().await;
                        inside.0 += 1;
                        inside.1 = spin(inside.1, INSIDE);
                        drop(inside);
                        own = spin(own, OUTSIDE);
                    }
                }
                black_box(own);
            })
        })
        .collect();
    // The clock is read before the gate opens, because with one worker the contenders may be done
    // before this task runs again.
    let start = Instant::now();
    gate.wait().await;
    for contender in contenders {
        contender.await.expect("no panic");
    }
    let elapsed = start.elapsed();
    let counted = tokios.lock().await.0 + stds.lock().expect("not poisoned").0;
    assert_eq!(counted, total as u64);
    let keys = format!("lock={lock}");
    sample("ops", total as f64 / elapsed.as_secs_f64(), "1/s", &keys);
}
