//! Benchmarks with communication between coroutines: `yield`, `message`, `sieve`, `mutex`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use kumihimo_bench_kit::work::{self, CONTENDERS, INSIDE, OUTSIDE, spin};
use kumihimo_bench_kit::{Request, per, sample};
use may::coroutine::{self, JoinHandle};
use may::go;
use may::sync::mpsc::{Receiver, Sender, channel};
use may::sync::{Barrier, Mutex};

/// Two coroutines for each worker, which take turns.
pub fn switch(request: &Request) {
    const ROUNDS: usize = 500_000;
    let both = Arc::new(Barrier::new(2 * request.vps));
    let yielders: Vec<_> = (0..2 * request.vps)
        .map(|_| {
            let both = both.clone();
            go!(move || {
                for _ in 0..ROUNDS / 10 {
                    coroutine::yield_now();
                }
                both.wait();
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    coroutine::yield_now();
                }
                start.elapsed()
            })
        })
        .collect();
    let slowest = yielders.into_iter().map(|y| y.join().expect("no panic")).max();
    // Each worker switches twice in a round.
    sample("switch", per(slowest.expect("two at least"), 2 * ROUNDS), "ns", "");
}

pub fn message(_: &Request) {
    const ROUNDS: usize = 300_000;
    let (ask, asked) = channel::<usize>();
    let (answer, answered) = channel::<usize>();
    let server = go!(move || {
        for request in asked {
            answer.send(request + 1).expect("the client waits");
        }
    });
    let exchange = |rounds: usize| {
        for i in 0..rounds {
            ask.send(i).expect("the server lives");
            assert_eq!(answered.recv(), Ok(i + 1));
        }
    };
    exchange(ROUNDS / 10);
    let start = Instant::now();
    exchange(ROUNDS);
    sample("roundtrip", per(start.elapsed(), ROUNDS), "ns", "");
    drop(ask);
    server.join().expect("no panic");
}

/// The paper's chain: a generator, and a filter for each prime, created by the preceding filter.
/// All channels of `may` are unbounded.
pub fn sieve(request: &Request) {
    for part in ["primes700", "primes2000"] {
        if !request.wants(part) {
            continue;
        }
        let sieve = work::sieve(part);
        let rounds = if sieve.primes < 1_000 { 20 } else { 1 };
        let run = || {
            let (send, receive) = channel();
            let first = filter(receive);
            for n in 2..=sieve.limit {
                send.send(n).expect("the first filter lives");
            }
            drop(send);
            assert_eq!(first.join().expect("no panic"), (sieve.primes, sieve.sum));
        };
        run();
        let start = Instant::now();
        for _ in 0..rounds {
            run();
        }
        sample(part, start.elapsed().as_secs_f64() / rounds as f64, "s", "");
    }
}

fn filter(from: Receiver<u32>) -> JoinHandle<(usize, u64)> {
    go!(move || {
        let prime = from.recv().expect("a filter is made when there is a prime for it");
        let mut next: Option<(Sender<u32>, JoinHandle<(usize, u64)>)> = None;
        for n in from {
            if n % prime != 0 {
                let (send, _) = next.get_or_insert_with(|| {
                    let (send, receive) = channel();
                    (send, filter(receive))
                });
                send.send(n).expect("the next filter lives");
            }
        }
        let (primes, sum) = next.map_or((0, 0), |(send, filter)| {
            drop(send);
            filter.join().expect("no panic")
        });
        (primes + 1, sum + u64::from(prime))
    })
}

pub fn mutex(request: &Request) {
    let rounds: usize = request.value("rounds", 20_000);
    let shared = Arc::new(Mutex::new((0u64, 1u64)));
    let gate = Arc::new(Barrier::new(CONTENDERS + 1));
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|seed| {
            let (shared, gate) = (shared.clone(), gate.clone());
            go!(move || {
                gate.wait();
                let mut own = seed as u64 + 1;
                for _ in 0..rounds {
                    let mut inside = shared.lock().expect("not poisoned");
                    inside.0 += 1;
                    inside.1 = spin(inside.1, INSIDE);
                    drop(inside);
                    own = spin(own, OUTSIDE);
                }
                black_box(own);
            })
        })
        .collect();
    let start = Instant::now();
    gate.wait();
    for contender in contenders {
        contender.join().expect("no panic");
    }
    let elapsed = start.elapsed();
    let total = CONTENDERS * rounds;
    assert_eq!(shared.lock().expect("not poisoned").0, total as u64);
    sample("ops", total as f64 / elapsed.as_secs_f64(), "1/s", "");
}
