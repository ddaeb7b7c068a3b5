//! Detects hangs by missing progress: a process hangs when neither it nor a descendant runs or
//! waits for a core.
//!
//! A limit in wall-clock time would kill a healthy test on a busy machine. Here, time on a core and
//! time in the kernel's run queue both count as progress, so load delays the verdict but never
//! changes it. `xtask` watches whole suites with this crate, and the integration tests watch their
//! child processes.

mod family;
mod report;

pub use report::report;

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A check counts as idle if the process used at most this share of the interval: 2 %.
///
/// Not zero: a hung runtime may still have a kernel thread that wakes up periodically.
const IDLE_SHARE: u32 = 50;

/// Watches a process and its descendants.
#[derive(Debug)]
pub struct Watch {
    root: u32,
    last: HashMap<u32, family::Usage>,
    looked: Instant,
    total: Duration,
    idle: u32,
}

impl Watch {
    /// Begins to watch the process `root`. If it leads a process group or a session, a descendant
    /// that outlives its parent is found by that.
    #[must_use]
    pub fn new(root: u32) -> Self {
        Self {
            root,
            last: family::usage(root),
            looked: Instant::now(),
            total: Duration::ZERO,
            idle: 0,
        }
    }

    /// Compares with the previous check and returns the number of consecutive idle checks. Checks
    /// should be at least a second apart, because the kernel accounts some waits only at their end.
    ///
    /// If all threads have ended, it returns 0: the process does not hang. The thread that waits
    /// for it may be late: a kernel was seen to schedule no one on one of its cores for a minute.
    pub fn look(&mut self) -> u32 {
        let now = family::usage(self.root);
        let since = self.looked.elapsed();
        self.looked = Instant::now();
        let mut busy = Duration::ZERO;
        let mut same_threads = now.len() == self.last.len();
        for (thread, usage) in &now {
            // The start of a new thread counts as progress.
            let before = self.last.get(thread).copied().unwrap_or_else(|| {
                same_threads = false;
                family::Usage::default()
            });
            let ran = usage.ran.saturating_sub(before.ran);
            self.total += ran;
            busy += ran + usage.queued.saturating_sub(before.queued);
            // The kernel accounts time in the run queue when it ends. A thread that is runnable
            // during the whole interval shows neither kind of time.
            if usage.runnable {
                busy += since;
            }
        }
        self.last = now;
        let is_idle = same_threads && !self.last.is_empty() && busy < since / IDLE_SHARE;
        self.idle = if is_idle { self.idle + 1 } else { 0 };
        self.idle
    }

    /// CPU time of all threads, up to the last check that found them.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.total
    }
}

/// The process `root`, its descendants, and all processes in the group or session that it leads.
#[must_use]
pub fn family(root: u32) -> Vec<u32> {
    family::members(root)
}

#[cfg(test)]
mod tests;
