//! What others ask of a VP about microprocesses that may be in its queue. Rare, so a lock does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel_thread::no_events::lock;
use crate::microprocess::record::Ref;

/// So many entries of a list that nobody serves are looked through for doubles.
const MANY: usize = 256;

#[derive(Default)]
pub(crate) struct PriorityRequests {
    pending: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Whose priority has changed, and how many VPs were asked before.
    of: Vec<(Ref, usize)>,
    /// Its length after the last look for doubles.
    tidy: usize,
}

impl List {
    /// A VP that takes no step while others are changed thousands of times: the list is bounded by
    /// how many they are.
    fn add(&mut self, who: Ref, before: usize) {
        self.of.push((who, before));
        if self.of.len() >= MANY.max(2 * self.tidy) {
            let key = |(who, before): &(Ref, usize)| {
                (std::ptr::from_ref(who.mp).addr(), who.generation, *before)
            };
            // The one that was asked of the fewest stays.
            self.of.sort_unstable_by_key(key);
            self.of.dedup_by(|(after, _), (first, _)| after == first);
            self.tidy = self.of.len();
        }
    }
}

impl PriorityRequests {
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// What was asked for since the last call; none if nothing was. By the owner of the VP.
    pub(crate) fn take(&self) -> Option<Vec<(Ref, usize)>> {
        if !self.pending() {
            return None;
        }
        self.pending.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *lock(&self.list)).of)
    }

    /// Adds a request. True: there was none, and the VP is to be notified.
    #[must_use]
    pub(crate) fn add(&self, who: Ref, before: usize) -> bool {
        lock(&self.list).add(who, before);
        // Release: the owner that sees it sees the new priority.
        !self.pending.swap(true, Ordering::Release)
    }
}
