//! `control`: `part=suspend`: one microprocess suspends another, which computes and calls nothing.
//! `part=target`: such a one, for a steering process outside. `part=crowd`: many that are parked,
//! to be listed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::thread::{self, JoinHandle, Suspended};
use kumihimo_bench_kit::{Lateness, Request, sample};

use crate::io::echo::until_told;
use crate::threads::park::park_one;

/// What it has for itself before it is asked again.
const BETWEEN: Duration = Duration::from_millis(1);

pub fn control(request: &Request) {
    match request.get("part") {
        Some("suspend") => suspend(request.value("rounds", 1_000)),
        Some("target") => {
            let computing = Computing::begin();
            let id = computing.one.thread().id().resource().expect("it is a microprocess");
            println!("computes {id}");
            until_told();
        }
        Some("crowd") => {
            let count = request.value("count", 10_000);
            let (standing, gate) = (Arc::<AtomicUsize>::default(), Arc::default());
            let parked =
                |n| park_one(false, n, standing.clone(), Arc::clone(&gate)).expect("there is room");
            let _crowd: Vec<_> = (0..count).map(parked).collect();
            while standing.load(Relaxed) < count {
                thread::yield_now();
            }
            println!("parked {count}");
            until_told();
        }
        other => panic!("part={other:?}: no such part"),
    }
}

/// One that computes until it is told to stop, and what it counts.
struct Computing {
    one: JoinHandle<()>,
    turns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Computing {
    fn begin() -> Computing {
        let (turns, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, told) = (turns.clone(), stop.clone());
        let one = thread::spawn(move || {
            let mut turn = 0;
            while !told.load(Relaxed) {
                turn += 1;
                counted.store(turn, Relaxed);
            }
        });
        Computing { one, turns, stop }
    }

    /// Whether it runs meanwhile.
    fn goes_on(&self) -> bool {
        let before = self.turns.load(Relaxed);
        thread::sleep(BETWEEN);
        self.turns.load(Relaxed) != before
    }
}

/// From the request until it is known to run no more. It is looked at, too: that it ran before, and
/// does not after.
fn suspend(rounds: usize) {
    let computing = Computing::begin();
    let one = computing.one.thread();
    let (mut late, mut other) = (Lateness::default(), 0);
    for _ in 0..rounds {
        while !computing.goes_on() {}
        let asked = Instant::now();
        let became = one.suspend().expect("it is a microprocess");
        late.record(asked.elapsed());
        if became == Suspended::Now {
            assert!(!computing.goes_on(), "it was said to have stopped");
        } else {
            other += 1;
        }
        one.resume().expect("it is a microprocess");
    }
    for (metric, q) in [("suspend_p50", 0.5), ("suspend_p99", 0.99), ("suspend_max", 1.0)] {
        sample(metric, late.us(q), "us", &format!("by=thread not_at_once:={other}"));
    }
    computing.stop.store(true, Relaxed);
    computing.one.join().expect("no panic");
}
