//! Timers of one virtual processor: a heap of deadlines, no kernel object each, no scan per tick.
//!
//! An entry is never searched for: a wait that ends early only bumps its microprocess's timer number, which makes the entry
//! stale. Stale entries are dropped when they come up, or all at once when they are the majority or the heap has doubled. A timer that fires is a
//! plain wake, and `park` may return spuriously anyway, so a race between the two costs a spurious return at worst.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

use crate::park;
use crate::record::{Mp, Ref};

/// How many are served at once.
pub(crate) const BATCH: usize = 16;

/// What an idle VP may be late, in nanoseconds, if it serves several timers at once by that: what the kernel allows itself with its own
/// threads (PR_SET_TIMERSLACK).
const SLACK: u64 = 50_000;

/// Sixteen bytes: with a hundred thousand of them the heap's lines leave the caches as well.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// Nanoseconds of the runtime's clock.
    at: u64,
    /// A record's address, in units of its alignment, above as much of its timer number as fits.
    who: u64,
}

/// User addresses end at 2^47.
const NUMBER_BITS: u32 = 64 - (47 - align_of::<Mp>().trailing_zeros());
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

impl Entry {
    fn new(at: u64, mp: &'static Mp, number: u32) -> Entry {
        let address = std::ptr::from_ref(mp).expose_provenance() / align_of::<Mp>();
        Entry { at, who: (address as u64) << NUMBER_BITS | u64::from(number) & NUMBER }
    }

    fn mp(self) -> &'static Mp {
        let address = (self.who >> NUMBER_BITS) as usize * align_of::<Mp>();
        // SAFETY: `new` made it from a record's address; records live for ever.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }

    /// The number alone tells: whatever life it is from, it was bumped if the wait ended before its timer came up.
    fn is_stale(self) -> bool {
        u64::from(self.mp().timer.load(Ordering::Relaxed)) & NUMBER != self.who & NUMBER
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
        self.heap.push(Reverse(Entry::new(at, who.mp, number)));
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

    /// Those that are due at `now`, or the first of them: as many as `due` holds. Returns how many came up, stale ones included.
    pub(crate) fn pop_due(&mut self, now: u64, due: &mut [Option<Ref>; BATCH]) -> usize {
        let mut entries = [None; BATCH];
        let mut n = 0;
        while n < BATCH && self.next().is_some_and(|at| at <= now) {
            entries[n] = self.heap.pop();
            // Cold among thousands: asked for here, looked at below.
            if let Some(Reverse(entry)) = &entries[n] {
                park::fetch(std::ptr::from_ref(entry.mp()).cast());
            }
            n += 1;
        }
        for (place, entry) in due.iter_mut().zip(entries.iter().take(n).flatten()) {
            let stale = entry.0.is_stale();
            self.stale = self.stale.saturating_sub(usize::from(stale));
            *place = (!stale).then(|| entry.0.mp().reference());
        }
        n
    }

    /// Forgets all of them: the runtime has ended.
    pub(crate) fn clear(&mut self) {
        *self = Timers::default();
    }
}
