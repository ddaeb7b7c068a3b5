//! Requests of other threads to a VP: microprocesses that may be in its queue have changed their
//! priority. Rare, so a lock suffices.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel_thread::no_events::lock;
use crate::microprocess::record::Ref;

/// Minimum length from which on an unserved list is searched for duplicates.
const MANY: usize = 256;

#[derive(Default)]
pub(crate) struct PriorityRequests {
    pending: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// The microprocesses whose priority has changed, and how many VPs were asked before.
    of: Vec<(Ref, usize)>,
    /// Length of the list after the last removal of duplicates.
    tidy: usize,
}

impl List {
    /// Adds an entry. A VP may take no step while priorities change thousands of times, so the
    /// length is bounded by the number of distinct microprocesses.
    fn add(&mut self, who: Ref, before: usize) {
        self.of.push((who, before));
        if self.of.len() >= MANY.max(2 * self.tidy) {
            let key = |(who, before): &(Ref, usize)| {
                (std::ptr::from_ref(who.mp).addr(), who.generation, *before)
            };
            // Of several entries, the one with the fewest VPs asked stays.
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

    /// Takes the requests since the last call; `None` if there are none. Owner only.
    pub(crate) fn take(&self) -> Option<Vec<(Ref, usize)>> {
        if !self.pending() {
            return None;
        }
        self.pending.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *lock(&self.list)).of)
    }

    /// Adds a request. Returns true if it is the first one: the caller must then notify the VP.
    #[must_use]
    pub(crate) fn add(&self, who: Ref, before: usize) -> bool {
        lock(&self.list).add(who, before);
        // Release: the owner that observes the flag also observes the new priority.
        !self.pending.swap(true, Ordering::Release)
    }
}
