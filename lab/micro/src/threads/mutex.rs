//! `mutex`: 64 contenders for a short section.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use kumihimo::sync::{Barrier, Mutex};
use kumihimo_bench_kit::work::{CONTENDERS, INSIDE, OUTSIDE, spin};
use kumihimo_bench_kit::{Request, sample};

use crate::variant::Variant;

pub fn mutex(request: &Request) {
    let rounds: usize = request.value("rounds", 20_000);
    let seconds = contend(Variant::of(request), rounds);
    sample("ops", (CONTENDERS * rounds) as f64 / seconds, "1/s", "");
}

/// Seconds for `rounds` sections of each contender.
pub fn contend(variant: Variant, rounds: usize) -> f64 {
    let shared = Arc::new(Mutex::new((0u64, 1u64)));
    let gate = Arc::new(Barrier::new(CONTENDERS + 1));
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|seed| {
            let (shared, gate) = (shared.clone(), gate.clone());
            variant.spawn(move || {
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
    // The clock is read before the gate opens, because on one VP the contenders may be done before
    // this microprocess runs again.
    let start = Instant::now();
    gate.wait();
    for contender in contenders {
        contender.join().expect("no panic");
    }
    let elapsed = start.elapsed().as_secs_f64();
    assert_eq!(shared.lock().expect("not poisoned").0, (CONTENDERS * rounds) as u64);
    elapsed
}
