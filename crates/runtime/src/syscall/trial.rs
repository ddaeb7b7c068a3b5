//! Whether batches pay where they are made: tried out, and tried again.
//!
//! What a call costs in a batch is known from a loop in which everything is in the caches
//! ([`kumihimo_batch::Costs`]). In a server each call that waits for a batch costs two more
//! switches between stacks that have left the caches, and its socket has left them too when the
//! reply is sent; and the reader of the reply waits for the batch, too. Whether that is more than
//! the entries saved depends on the program. So both ways are taken for some calls each, by the
//! clock of the kernel thread's own time on its core, and then the one that took less of it a call;
//! now and then the other again.
//!
//! What one way leaves in the caches the other one finds there. So a window is as long as it takes
//! to serve everybody some times over: among 10,000 connections one of a thousand calls said that
//! batches pay where they cost a sixth.

use std::cell::Cell;

/// Calls after which the clock is read, at least.
const WINDOW: u32 = 1024;
/// The same of the first two, one of each way: an opinion soon.
const FIRST_WINDOW: u32 = 128;
/// Part of a window, after the way has changed, that is not timed: batches of the one before are
/// under way, and what is in the caches is its.
const WARM_UP: u32 = 8;
/// Calls with which one that waits for descriptors is served: it reads and writes.
const ROUND: u32 = 2;
/// Rounds of everybody in a window, at least.
const ROUNDS: u32 = 4;
/// No longer window, whatever the load: the load itself is another one by then.
const LONGEST: u32 = 1 << 18;
/// One window in so many is the other way's; at the beginning the 4th, the 8th and so on, a first
/// opinion being a hasty one.
const AGAIN: u32 = 64;
/// In percent of a plain call: a batch must take less. Not nearly as much: a call in a batch is
/// served later.
const PAYS: u64 = 90;

/// The clock of a kernel thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Whose time it is: times of two of them mean nothing together.
    pub(crate) thread: usize,
    /// Nanoseconds that it has been on a core.
    pub(crate) on_core: u64,
}

/// Of one virtual processor. Owner only.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// For which setting of the policy: another one begins anew.
    of: Cell<u32>,
    /// How many descriptors were waited for when it began: of many more a few say nothing.
    crowd: Cell<u32>,
    in_batches: Cell<bool>,
    /// Calls until the clock is read, and of the whole window.
    left: Cell<u32>,
    length: Cell<u32>,
    /// At the beginning of the window; `None`: it has not begun, its way warms up.
    since: Cell<Option<Reading>>,
    windows: Cell<u32>,
    /// Nanoseconds a call, plain and in batches; 0: not known.
    took: [Cell<u64>; 2],
}

impl Trial {
    /// Counts a call that could wait for a batch, and says whether it is to. `of` is the number of
    /// the policy's setting; `crowd`, how many descriptors are waited for.
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
            // Whatever begins is cold.
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

    /// From this call on.
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

    /// A window took so long a call. Whatever disturbs it makes it longer: a shorter one is
    /// believed sooner.
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
