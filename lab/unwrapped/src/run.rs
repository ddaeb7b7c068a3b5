//! Runs a workload with the clock beside it, and prints the samples.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use kumihimo_bench_kit::{Lateness, Usage, sample};

use crate::clock::{Progress, tick};
use crate::connections::{Connections, Own};
use crate::observer::Observer;
use crate::plan::Plan;
use crate::threads::{Body, Join, Per, Threads};
use crate::work::{self, Work};

/// Place for a thread's result.
type Place<T> = Arc<Mutex<Option<T>>>;

impl Plan {
    /// Runs the workload on `threads` and prints its samples.
    ///
    /// # Errors
    /// `refused: WHY` if the machine lacks something that the workload needs.
    ///
    /// # Panics
    /// If a result is wrong.
    pub fn run(&self, threads: &Arc<dyn Threads>) -> Result<(), String> {
        self.run_on::<Own>(threads)
    }

    /// As [`run`](Plan::run), with other connections.
    ///
    /// # Errors
    /// As `run`.
    ///
    /// # Panics
    /// If a result is wrong.
    pub fn run_on<C: Connections>(&self, threads: &Arc<dyn Threads>) -> Result<(), String> {
        let Work { bodies, beside, operations, end } = work::prepare::<C>(self, threads)?;
        let count = bodies.len();
        let progress = Arc::new(Progress::default());
        let observer = Observer::start(self.patience);
        let (counts, usage, begin) = (threads.counts(), Usage::now(), Instant::now());
        let joins = spawn_all(&**threads, self.pool(), bodies, &progress);
        let beside = beside.map(|body| {
            let progress = progress.clone();
            threads.spawn_above(Box::new(move || body(&progress)))
        });
        let (clock, late) = start_clock(threads, &progress, count);
        joins.into_iter().for_each(|join| join());
        let (wall, used, after) =
            (begin.elapsed().as_secs_f64(), Usage::now().since(usage), threads.counts());
        progress.over.store(true, Relaxed);
        clock();
        beside.into_iter().for_each(|join| join());
        let kernel_threads = observer.end();
        let notes = end(&used);

        let keys = &self.keys;
        let source =
            threads.source().map(|source| format!(" source:={source}")).unwrap_or_default();
        let time = |seconds: f64| match operations {
            Some(operations) => (seconds * 1e6 / operations as f64, "us"),
            None => (seconds, "s"),
        };
        for (metric, seconds) in [("wall", wall), ("cpu", used.cpu.as_secs_f64())] {
            let (value, unit) = time(seconds);
            sample(metric, value, unit, &format!("{keys}{source}{notes}"));
        }
        sample("kernel_threads", kernel_threads as f64, "threads", keys);
        let switches = used.voluntary_switches + used.involuntary_switches;
        sample("switches", switches as f64, "switches", keys);
        for (before, now) in counts.iter().zip(&after) {
            let grown = (now.total - before.total) as f64;
            let (value, unit) = match now.per {
                Per::Body => (grown / count as f64, "each"),
                Per::Second => (grown / wall, "1/s"),
            };
            sample(now.metric, value, unit, &format!("{keys} all:={grown}"));
        }
        let late = late.lock().expect("not poisoned").take().expect("the clock has ended");
        for (metric, q) in [("clock_p50", 0.5), ("clock_p99", 0.99)] {
            sample(metric, late.us(q), "us", &format!("{keys} ticks:={}", late.len()));
        }
        Ok(())
    }
}

/// Spawns a thread for each body; or, if the contender uses pools, a pool of threads that run the
/// bodies in turn.
fn spawn_all(
    threads: &dyn Threads,
    pool: Option<usize>,
    bodies: Vec<Body>,
    progress: &Arc<Progress>,
) -> Vec<Join> {
    let counted = |body: Body| {
        let progress = progress.clone();
        Box::new(move || {
            progress.begun.fetch_add(1, Relaxed);
            body();
        }) as Body
    };
    let bodies = bodies.into_iter().map(counted);
    let Some(pool) = pool.filter(|_| threads.has_pool()) else {
        return bodies.map(|body| threads.spawn(body)).collect();
    };
    let size = pool.min(bodies.len());
    let queue = Arc::new(Mutex::new(bodies.collect::<Vec<_>>().into_iter()));
    let next =
        move |queue: &Mutex<std::vec::IntoIter<Body>>| queue.lock().expect("not poisoned").next();
    let run = |_| {
        let queue = queue.clone();
        threads.spawn(Box::new(move || {
            while let Some(body) = next(&queue) {
                body();
            }
        }))
    };
    (0..size).map(run).collect()
}

fn start_clock(
    threads: &Arc<dyn Threads>,
    progress: &Arc<Progress>,
    bodies: usize,
) -> (Join, Place<Lateness>) {
    let late = Place::default();
    let (own, progress, result) = (threads.clone(), progress.clone(), late.clone());
    let clock = threads.spawn(Box::new(move || {
        *result.lock().expect("not poisoned") = Some(tick(&*own, &progress, bodies));
    }));
    (clock, late)
}
