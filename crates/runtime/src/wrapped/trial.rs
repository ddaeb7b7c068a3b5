//! Whether batches pay where they are made: tried out, and tried again.
//!
//! What a call costs in a batch is known from a loop in which everything is in the caches ([`kumihimo_batch::Costs`]). In a server each call that waits for
//! a batch costs two more switches between stacks that have left the caches, and its socket has left them too when the reply is sent; and who waits for
//! the reply waits for the batch. Whether that is more than the entries saved depends on the program. So both ways are taken for some calls each,
//! by the clock, and then the one that took less time a call; now and then the other again.

use std::cell::Cell;

/// Calls after which the clock is read.
const WINDOW: u32 = 128;
/// Windows of each way at the beginning.
const FIRST: u32 = 3;
/// One window in so many is the other way's.
const AGAIN: u32 = 32;
/// In percent of a plain call: a batch must take less.
const PAYS: u64 = 97;

/// Of one virtual processor. Owner only.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// For which setting of the policy: another one begins anew.
    of: Cell<u32>,
    in_batches: Cell<bool>,
    counted: Cell<u32>,
    since: Cell<u64>,
    windows: Cell<u32>,
    /// Nanoseconds a call, plain and in batches; 0: not known.
    took: [Cell<u64>; 2],
}

impl Trial {
    /// Counts a call that could wait for a batch, and says whether it is to. `of` is the number of the policy's setting.
    #[inline]
    pub(super) fn in_batches(&self, of: u32, now: impl FnOnce() -> u64) -> bool {
        let n = self.counted.get() + 1;
        self.counted.set(n);
        if n >= WINDOW || self.of.get() != of {
            self.next_window(of, now());
        }
        self.in_batches.get()
    }

    #[cold]
    fn next_window(&self, of: u32, now: u64) {
        if self.of.replace(of) != of {
            self.windows.set(0);
            self.took.iter().for_each(|took| took.set(0));
            self.in_batches.set(false);
        } else {
            self.book(now.saturating_sub(self.since.get()) / u64::from(WINDOW));
            let windows = self.windows.get() + 1;
            self.windows.set(windows);
            let better = self.took[1].get() * 100 < self.took[0].get() * PAYS;
            let next = if windows < 2 * FIRST { windows % 2 == 1 } else { better != windows.is_multiple_of(AGAIN) };
            self.in_batches.set(next);
        }
        self.counted.set(0);
        self.since.set(now);
    }

    /// A window took so long a call. Of the past an eighth is forgotten; a window in which the machine was elsewhere counts as a bad one and no more.
    fn book(&self, each: u64) {
        let took = &self.took[usize::from(self.in_batches.get())];
        let before = took.get();
        took.set(if before == 0 { each.max(1) } else { (before * 7 + each.min(before * 2)) / 8 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `calls` calls were batched, where a plain one takes `plain` and one in a batch `batched` nanoseconds.
    fn run(trial: &Trial, of: u32, clock: &Cell<u64>, (plain, batched): (u64, u64), calls: u32) -> u32 {
        (0..calls)
            .map(|_| {
                let way = trial.in_batches(of, || clock.get());
                clock.set(clock.get() + if way { batched } else { plain });
                u32::from(way)
            })
            .sum()
    }

    #[test]
    fn the_better_way_is_taken_and_the_other_now_and_then() {
        for (costs, few) in [((1000, 1200), true), ((1000, 800), false)] {
            let (trial, clock) = (Trial::default(), Cell::new(5));
            let n = 100 * WINDOW;
            let batched = run(&trial, 1, &clock, costs, n);
            let other = if few { batched } else { n - batched };
            assert!((FIRST * WINDOW..=(FIRST + 4) * WINDOW).contains(&other), "{costs:?}: {other} of {n}");
        }
    }

    #[test]
    fn a_change_of_the_load_is_noticed() {
        let (trial, clock) = (Trial::default(), Cell::new(0));
        run(&trial, 1, &clock, (1000, 1500), 50 * WINDOW);
        run(&trial, 1, &clock, (1000, 500), 40 * AGAIN * WINDOW);
        let batched = run(&trial, 1, &clock, (1000, 500), 10 * WINDOW);
        assert!(batched >= 9 * WINDOW, "{batched}");
    }

    #[test]
    fn a_new_setting_begins_anew() {
        let (trial, clock) = (Trial::default(), Cell::new(0));
        run(&trial, 1, &clock, (1000, 1500), 50 * WINDOW);
        let batched = run(&trial, 2, &clock, (1000, 500), 50 * WINDOW);
        assert!(batched >= 40 * WINDOW, "{batched}");
    }
}
