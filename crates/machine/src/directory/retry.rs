//! Attempts that are repeated for a while.

use std::time::{Duration, Instant};

use rustix::thread::Timespec;

/// Calls `done` until it returns true, with growing pauses. Returns false if it has not after
/// `patience`.
pub(crate) fn retry_within(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let (begun, mut pause) = (Instant::now(), Duration::from_micros(50));
    loop {
        if done() {
            return true;
        }
        if begun.elapsed() > patience {
            return false;
        }
        nap(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Sleeps for `time`, or until a signal arrives. std's sleep continues for the remaining time, to
/// which the kernel adds its timer slack again. If signals arrive more often than that, it never
/// ends (nanosleep(2), "can be problematic").
fn nap(time: Duration) {
    let _ = Timespec::try_from(time).map(|time| rustix::thread::nanosleep(&time));
}
