//! `sieve`: the paper's chain: a generator, and a filter for each prime, created by the preceding
//! filter, connected by rendezvous channels.

use std::time::Instant;

use kumihimo::sync::mpsc::{Receiver, SyncSender, sync_channel};
use kumihimo::thread::JoinHandle;
use kumihimo_bench_kit::work::{self, Sieve};
use kumihimo_bench_kit::{Request, sample};

use crate::variant::Variant;

pub fn sieve(request: &Request) {
    let variant = Variant::of(request);
    for part in ["primes700", "primes2000"] {
        if !request.wants(part) {
            continue;
        }
        let sieve = work::sieve(part);
        let rounds = if sieve.primes < 1_000 { 100 } else { 2 };
        if rounds > 2 {
            once(variant, sieve);
        }
        let start = Instant::now();
        for _ in 0..rounds {
            once(variant, sieve);
        }
        sample(part, start.elapsed().as_secs_f64() / f64::from(rounds), "s", "");
    }
}

pub fn once(variant: Variant, sieve: Sieve) {
    let (send, receive) = sync_channel(0);
    let first = filter(variant, receive);
    let generator = variant.spawn(move || {
        for n in 2..=sieve.limit {
            send.send(n).expect("the first filter lives");
        }
    });
    generator.join().expect("no panic");
    assert_eq!(first.join().expect("no panic"), (sieve.primes, sieve.sum));
}

fn filter(variant: Variant, from: Receiver<u32>) -> JoinHandle<(usize, u64)> {
    variant.spawn(move || {
        let prime = from.recv().expect("a filter is made when there is a prime for it");
        let mut next: Option<(SyncSender<u32>, JoinHandle<_>)> = None;
        for n in from {
            if n % prime != 0 {
                let (send, _) = next.get_or_insert_with(|| {
                    let (send, receive) = sync_channel(0);
                    (send, filter(variant, receive))
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
