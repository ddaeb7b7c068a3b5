//! Timers of one virtual processor: a heap of deadlines, no kernel object each, no scan per tick.
//!
//! An entry is never searched for: a wait that ends early only bumps its microprocess's timer number, which makes the entry
//! stale. Stale entries are dropped when they come up, or all at once when they are the majority or the heap has doubled. A timer that fires is a
//! plain wake, and `park` may return spuriously anyway, so a race between the two costs a spurious return at worst.

use std::cmp::{Ordering as Order, Reverse};
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

use crate::record::Ref;

/// What an idle VP may be late, in nanoseconds, if it serves several timers at once by that: what the kernel allows itself with its own
/// threads (PR_SET_TIMERSLACK).
const SLACK: u64 = 50_000;

struct Entry {
    /// Nanoseconds of the runtime's clock.
    at: u64,
    who: Ref,
    number: u32,
}

impl Entry {
    fn is_stale(&self) -> bool {
        self.who.mp.timer.load(Ordering::Relaxed) != self.number || !self.who.is_current()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Order {
        self.at.cmp(&other.at)
    }
}

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    /// Waits on this VP's entries that ended early here; those that ended on other VPs are not counted.
    stale: usize,
    /// Length at which the heap is looked through for those.
    sweep_at: usize,
}

impl Timers {
    /// Arms the microprocess's one timer.
    pub(crate) fn arm(&mut self, who: Ref, at: u64) {
        let number = who.mp.timer.load(Ordering::Relaxed).wrapping_add(1);
        who.mp.timer.store(number, Ordering::Relaxed);
        self.heap.push(Reverse(Entry { at, who, number }));
        if self.heap.len() > self.sweep_at {
            self.sweep();
        }
    }

    /// Looked at only when the heap has doubled since: a constant share of the cost of arming.
    #[cold]
    fn sweep(&mut self) {
        self.heap.retain(|Reverse(e)| !e.is_stale());
        self.stale = 0;
        self.sweep_at = (self.heap.len() * 2).max(1024);
    }

    /// The caller has made one entry stale.
    pub(crate) fn disarmed(&mut self) {
        self.stale += 1;
        if self.stale > 64 && self.stale > self.heap.len() / 2 {
            self.sweep();
        }
    }

    /// When the next one is due, stale or not.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(e)| e.at)
    }

    /// When a VP that idles should wake up for them: when the next one is due, or a little later if another one is due soon after it.
    pub(crate) fn rouse_at(&self) -> Option<u64> {
        let mut entries = self.heap.as_slice().iter().map(|Reverse(e)| e.at);
        let first = entries.next()?;
        // In a binary heap the second one is one of the next two.
        let crowded = entries.take(2).any(|at| at <= first.saturating_add(SLACK));
        Some(if crowded { first.saturating_add(SLACK) } else { first })
    }

    /// One that is due at `now`, if any.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Ref> {
        while self.next().is_some_and(|at| at <= now) {
            let Reverse(entry) = self.heap.pop()?;
            if entry.is_stale() {
                self.stale = self.stale.saturating_sub(1);
            } else {
                return Some(entry.who);
            }
        }
        None
    }

    /// Forgets all of them: the runtime has ended.
    pub(crate) fn clear(&mut self) {
        *self = Timers::default();
    }
}
