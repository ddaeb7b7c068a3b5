//! `redis` and `levels`: the crate `redis`, unmodified, on its own connections.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::work::{STEP, spin};
use redis::Commands;

use super::Work;
use crate::clock::Progress;
use crate::connections::Connections;
use crate::plan::Plan;
use crate::threads::{Body, Threads};

/// The thread of higher priority computes for this time ...
const BUSY: Duration = Duration::from_millis(1);
/// ... in each period of this length.
const PERIOD: Duration = Duration::from_millis(10);

/// One connection for each body, which repeatedly sets a key and reads it.
pub fn commands<C: Connections>(plan: &Plan) -> Work {
    let (port, rounds) = (plan.port, plan.rounds);
    let body = |number| Box::new(move || set_and_get::<C>(port, number, rounds)) as Body;
    let note = format!(" commands:={}", 2 * plan.count * rounds);
    Work { end: Box::new(move |_| note), ..Work::of((0..plan.count).map(body).collect()) }
}

/// The same workload beside a thread of higher priority that is busy for a tenth of the time.
pub fn beside_a_higher_level<C: Connections>(plan: &Plan, threads: &Arc<dyn Threads>) -> Work {
    let threads = threads.clone();
    Work {
        beside: Some(Box::new(move |progress| compute_in_bursts(&*threads, progress))),
        ..commands::<C>(plan)
    }
}

fn set_and_get<C: Connections>(port: u16, number: usize, rounds: usize) {
    let mut connection = C::redis(port);
    for round in 0..rounds {
        let key = format!("kumihimo:{number}:{}", round % 10);
        let stored: String = connection.set(&key, round).expect("a reply");
        assert_eq!(stored, "OK");
        let read: usize = connection.get(&key).expect("a reply");
        assert_eq!(read, round, "{key}");
    }
}

fn compute_in_bursts(threads: &dyn Threads, progress: &Progress) {
    let mut x = 1;
    while !progress.over.load(Relaxed) {
        let begin = Instant::now();
        while begin.elapsed() < BUSY {
            x = black_box(spin(x, STEP));
        }
        threads.sleep_until(begin + PERIOD);
    }
}
