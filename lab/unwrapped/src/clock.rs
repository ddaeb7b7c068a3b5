//! A clock that ticks beside a workload.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;

use crate::threads::Threads;

const TICK: Duration = Duration::from_millis(1);
/// Ticks count once all bodies have begun. Otherwise a contender with a single queue would be
/// measured while it spawns. If a limit delays bodies, ticks count after this time.
const BEGINNING: Duration = Duration::from_millis(250);

/// Progress of a workload.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of bodies that have begun.
    pub begun: AtomicUsize,
    /// True if all bodies have ended.
    pub over: AtomicBool,
}

/// Sleeps until each next millisecond until the workload is over. Returns the delays of the
/// wake-ups.
pub fn tick(threads: &dyn Threads, progress: &Progress, bodies: usize) -> Lateness {
    let begin = Instant::now();
    let is_beginning = || progress.begun.load(Relaxed) < bodies && begin.elapsed() < BEGINNING;
    while is_beginning() && !progress.over.load(Relaxed) {
        threads.sleep_until(Instant::now() + TICK);
    }
    let mut late = Lateness::default();
    loop {
        let deadline = next_tick(begin, Instant::now());
        threads.sleep_until(deadline);
        // The last tick counts, too: the workload may have ended while the clock was stalled.
        late.woke(deadline);
        if progress.over.load(Relaxed) {
            return late;
        }
    }
}

/// The first whole millisecond since `begin` after `now`.
fn next_tick(begin: Instant, now: Instant) -> Instant {
    let ticks = (now - begin).as_nanos() / TICK.as_nanos() + 1;
    begin + TICK * u32::try_from(ticks).expect("no work lasts for weeks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelThreads;

    #[test]
    fn ticks_are_due_at_whole_milliseconds() {
        let begin = Instant::now();
        let due = |us| next_tick(begin, begin + Duration::from_micros(us)) - begin;
        assert_eq!([0, 999, 1_000, 1_001].map(due).map(|d| d.as_millis()), [1, 1, 2, 2]);
    }

    #[test]
    fn clock_ticks_until_the_work_is_over() {
        let progress = Progress::default();
        let late = std::thread::scope(|scope| {
            let clock = scope.spawn(|| tick(&KernelThreads, &progress, 0));
            std::thread::sleep(Duration::from_millis(20));
            progress.over.store(true, Relaxed);
            clock.join().expect("no panic")
        });
        assert!(!late.is_empty());
    }
}
