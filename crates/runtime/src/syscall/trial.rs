//! Trial of batches against plain calls, repeated from time to time.
//!
//! The cost of a call in a batch is measured in a loop with warm caches
//! ([`kumihimo_batch::Costs`]). In a server, each call that waits for a batch causes two more
//! switches between stacks that have left the caches. Its socket has left the caches, too, when the
//! reply is sent, and the reader of the reply waits for the batch. Whether that costs more than the
//! saved kernel entries depends on the program. So both alternatives are used for a window of calls
//! each, timed by the CPU time of the kernel thread. After that the alternative with the lower time
//! per call is used, and the other is retried from time to time.
//!
//! Each alternative leaves data in the caches that the next one finds there. So a window is long
//! enough to serve all connections several times. With 10,000 connections, a window of a thousand
//! calls favoured batches although they cost a sixth.

use std::cell::Cell;

/// Minimum number of calls in a window, after which the clock is read.
const WINDOW: u32 = 1024;
/// The same for the first two windows, one for each alternative, to get a first result soon.
const FIRST_WINDOW: u32 = 128;
/// Part of a window that is not timed after the alternative has changed: batches of the previous
/// one are in progress, and the caches contain its data.
const WARM_UP: u32 = 8;
/// Number of calls per service of one waiting descriptor: a read and a write.
const ROUND: u32 = 2;
/// Minimum number of services of each descriptor in a window.
const ROUNDS: u32 = 4;
/// Maximum length of a window, whatever the load. In a longer one the load itself would change.
const LONGEST: u32 = 1 << 18;
/// One window in this many uses the other alternative. In the beginning also the 4th, the 8th and
/// so on, because the first result is uncertain.
const AGAIN: u32 = 64;
/// Percentage of a plain call's time below which a batch is worth while. Less than 100, because a
/// call in a batch is served later.
const PAYS: u64 = 90;

/// Reading of a kernel thread's CPU clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The kernel thread. Readings of two threads cannot be compared.
    pub(crate) thread: usize,
    /// CPU time of the thread in nanoseconds.
    pub(crate) on_core: u64,
}

/// The trial of one VP. Owner only.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Number of the policy's setting. Another setting restarts the trial.
    of: Cell<u32>,
    /// Number of descriptors when the trial began. Results do not apply to many more.
    crowd: Cell<u32>,
    in_batches: Cell<bool>,
    /// Calls left until the clock is read, and length of the window.
    left: Cell<u32>,
    length: Cell<u32>,
    /// Reading at the beginning of the window; `None` while the alternative warms up.
    since: Cell<Option<Reading>>,
    windows: Cell<u32>,
    /// Time per call in nanoseconds, plain and in batches; 0 if unknown.
    took: [Cell<u64>; 2],
}

impl Trial {
    /// Counts a call that could wait for a batch, and returns whether it should. `of` is the number
    /// of the policy's setting, `crowd` the number of waiting descriptors.
    #[inline]
    pub(crate) fn in_batches(&self, of: u32, crowd: u32, now: impl FnOnce() -> Reading) -> bool {
        let left = self.left.get();
        if left == 0 || self.of.get() != of {
            self.step(of, crowd, now());
        } else {
            self.left.set(left - 1);
        }
        self.in_batches.get()
    }

    #[cold]
    fn step(&self, of: u32, crowd: u32, now: Reading) {
        let outgrown = crowd > (self.crowd.get().saturating_mul(2)).max(WINDOW / (ROUND * ROUNDS));
        if self.of.replace(of) != of || outgrown {
            self.crowd.set(crowd);
            self.windows.set(0);
            self.took.iter().for_each(|took| took.set(0));
            self.take(false, crowd, now);
            // The first window is not timed, because its caches are cold.
            self.since.set(None);
            return;
        }
        let Some(since) = self.since.get() else {
            self.since.set(Some(now));
            return self.begin(self.window(crowd));
        };
        if since.thread == now.thread {
            self.book(now.on_core.saturating_sub(since.on_core) / u64::from(self.length.get()));
        }
        let windows = self.windows.get() + 1;
        self.windows.set(windows);
        let better = self.took[1].get() * 100 < self.took[0].get() * PAYS;
        let again = windows.is_multiple_of(AGAIN)
            || (4..AGAIN).contains(&windows) && windows.is_power_of_two();
        self.take(windows == 1 || better != again, crowd, now);
    }

    /// Switches to an alternative from this call on.
    fn take(&self, in_batches: bool, crowd: u32, now: Reading) {
        let is_same = self.in_batches.replace(in_batches) == in_batches;
        self.since.set(is_same.then_some(now));
        let window = self.window(crowd);
        self.begin(if is_same {
            window
        } else {
            (window / WARM_UP).max(crowd.saturating_mul(ROUND)).min(window)
        });
    }

    fn begin(&self, calls: u32) {
        self.length.set(calls);
        self.left.set(calls - 1);
    }

    fn window(&self, crowd: u32) -> u32 {
        let (least, rounds) =
            if self.windows.get() < 2 { (FIRST_WINDOW, 1) } else { (WINDOW, ROUNDS) };
        crowd.saturating_mul(ROUND * rounds).clamp(least, LONGEST)
    }

    /// Records the time per call of a window. Disturbances only lengthen a window, so a shorter
    /// time gets more weight.
    fn book(&self, each: u64) {
        let took = &self.took[usize::from(self.in_batches.get())];
        let before = took.get();
        took.set(match before {
            0 => each.max(1),
            _ if each < before => (before + each) / 2,
            _ => (before * 7 + each.min(before * 2)) / 8,
        });
    }
}

#[cfg(test)]
mod tests;
