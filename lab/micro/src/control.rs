//! `control`: `part=suspend`: a microprocess suspends another one that computes without calls.
//! `part=target`: a computing microprocess for a steering process outside. `part=crowd`: many
//! parked microprocesses, to be listed; `names=each`: each with a name of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::thread::{self, JoinHandle, Suspended};
use kumihimo_bench_kit::{Lateness, Request, sample};

use crate::io::echo::until_told;
use crate::threads::park::park;
use crate::variant::Variant;

/// Time that the computing microprocess has before the next request.
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
            let has_names = request.get("names") == Some("each");
            let (standing, gate) = (Arc::<AtomicUsize>::default(), Arc::default());
            let parked = |n| {
                let variant = Variant::default();
                let variant = if has_names { variant.numbered(n) } else { variant };
                park(variant, n, standing.clone(), Arc::clone(&gate)).expect("there is room")
            };
            let _crowd: Vec<_> = (0..count).map(parked).collect();
            while standing.load(Relaxed) < count {
                thread::yield_now();
            }
            println!("parked {count}");
            until_told();
        }
        other => panic!("part={other:?}: unknown part"),
    }
}

/// A microprocess that computes until it is stopped, and its counter.
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

    /// Returns whether the microprocess runs meanwhile.
    fn goes_on(&self) -> bool {
        let before = self.turns.load(Relaxed);
        thread::sleep(BETWEEN);
        self.turns.load(Relaxed) != before
    }
}

/// Measures from the request until the microprocess is known to have stopped. Also checks that it
/// ran before and does not run after.
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
            assert!(!computing.goes_on(), "it must have stopped");
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
