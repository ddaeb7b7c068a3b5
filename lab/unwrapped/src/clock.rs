//! The clock that ticks beside a work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;

use crate::threads::Threads;

const TICK: Duration = Duration::from_millis(1);
/// Ticks count once all bodies have begun, since a contender that has one queue for all would
/// otherwise be measured at spawning. Where a limit delays bodies, ticks count after this time.
const BEGINNING: Duration = Duration::from_millis(250);

/// How far a work is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bodies that have begun.
    pub begun: AtomicUsize,
    /// All bodies have ended.
    pub over: AtomicBool,
}

/// Sleeps until each next millisecond, until the work is over. How late each wake-up was.
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
        // Also the last tick counts: the work may have ended because the clock was stalled so long.
        late.woke(deadline);
        if progress.over.load(Relaxed) {
            return late;
        }
    }
}

/// The first whole millisecond since `begin` that lies after `now`.
fn next_tick(begin: Instant, now: Instant) -> Instant {
    let ticks = (now - begin).as_nanos() / TICK.as_nanos() + 1;
    begin + TICK * u32::try_from(ticks).expect("no work lasts for weeks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelThreads;

    #[test]
    fn a_tick_is_due_at_the_next_whole_millisecond() {
        let begin = Instant::now();
        let due = |us| next_tick(begin, begin + Duration::from_micros(us)) - begin;
        assert_eq!([0, 999, 1_000, 1_001].map(due).map(|d| d.as_millis()), [1, 1, 2, 2]);
    }

    #[test]
    fn it_ticks_until_the_work_is_over() {
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
