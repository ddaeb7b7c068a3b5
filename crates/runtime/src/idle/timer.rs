//! Timers of one virtual processor: no kernel object each, no scan per tick.
//!
//! What is due within the current two milliseconds lies in a heap, small enough for the caches; the
//! rest lies unsorted in one bucket for each later two milliseconds, until its turn comes. (One
//! heap of a hundred thousand costs a cache miss a level.)
//!
//! An entry is never searched for: a wait that ends early only bumps its microprocess's timer
//! number, which makes the entry stale. Stale entries are dropped when they come up, or all at once
//! when they are the majority or there are twice as many entries. A timer that fires is a plain
//! wake, and `park` may return spuriously anyway, so a race between the two costs a spurious return
//! at worst.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::Ordering;

use crate::microprocess::prefetch;
use crate::microprocess::record::{Mp, Ref};

/// How many are served at once.
pub(crate) const BATCH: usize = 16;

/// What an idle VP may be late, in nanoseconds, if it serves several timers at once by that. (The
/// kernel allows itself half of it with its own threads, PR_SET_TIMERSLACK; to go to sleep and come
/// back takes a tenth.)
const SLACK: u64 = 100_000;

/// Width of a bucket, as a shift of nanoseconds.
const BUCKET: u32 = 21;

/// Sixteen bytes: with a hundred thousand of them every line counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TimerEntry {
    /// Nanoseconds of the runtime's clock.
    at: u64,
    /// A record's address, in units of its alignment, above as much of its timer number as fits.
    who: u64,
}

/// User addresses end at 2^47.
const NUMBER_BITS: u32 = 64 - (47 - align_of::<Mp>().trailing_zeros());
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

impl TimerEntry {
    fn new(at: u64, mp: &'static Mp, number: u32) -> TimerEntry {
        let address = std::ptr::from_ref(mp).expose_provenance() / align_of::<Mp>();
        TimerEntry { at, who: (address as u64) << NUMBER_BITS | u64::from(number) & NUMBER }
    }

    fn mp(self) -> &'static Mp {
        let address = (self.who >> NUMBER_BITS) as usize * align_of::<Mp>();
        // SAFETY: `new` made it from a record's address; records live for ever.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }

    /// The number alone tells: whatever life it is from, it was bumped if the wait ended before its
    /// timer came up.
    fn is_stale(self) -> bool {
        u64::from(self.mp().timer.load(Ordering::Relaxed)) & NUMBER != self.who & NUMBER
    }
}

/// Those of one stretch of time, in no order; never empty.
struct Bucket {
    first: u64,
    entries: Vec<TimerEntry>,
}

#[derive(Default)]
pub(crate) struct Timers {
    near: BinaryHeap<Reverse<TimerEntry>>,
    /// By `at >> BUCKET`, each at least `opened`.
    far: BTreeMap<u64, Bucket>,
    /// Buckets below this one have been emptied into `near`.
    opened: u64,
    len: usize,
    /// Waits on this VP's entries that ended early here; those that ended on other VPs are not
    /// counted.
    stale: usize,
    /// Number of entries at which all are looked through for those.
    sweep_at: usize,
}

impl Timers {
    /// Arms the microprocess's one timer.
    pub(crate) fn arm(&mut self, who: Ref, at: u64) {
        let number = who.mp.timer.load(Ordering::Relaxed).wrapping_add(1);
        who.mp.timer.store(number, Ordering::Relaxed);
        who.mp.timer_at.store(at, Ordering::Relaxed);
        self.insert(TimerEntry::new(at, who.mp, number));
        if self.len > self.sweep_at {
            self.sweep();
        }
    }

    fn insert(&mut self, entry: TimerEntry) {
        self.len += 1;
        let bucket = entry.at >> BUCKET;
        if bucket < self.opened {
            return self.near.push(Reverse(entry));
        }
        let bucket =
            self.far.entry(bucket).or_insert(Bucket { first: u64::MAX, entries: Vec::new() });
        bucket.first = bucket.first.min(entry.at);
        bucket.entries.push(entry);
    }

    /// Opens the buckets up to that of `now`.
    fn open(&mut self, now: u64) {
        self.opened = self.opened.max((now >> BUCKET) + 1);
        while let Some(bucket) = self.far.first_entry().filter(|b| *b.key() < self.opened) {
            self.near.extend(bucket.remove().entries.into_iter().map(Reverse));
        }
    }

    /// Looked at only when there are twice as many since: a constant share of the cost of arming.
    #[cold]
    fn sweep(&mut self) {
        self.near.retain(|Reverse(e)| !e.is_stale());
        self.len = self.near.len();
        self.far.retain(|_, bucket| {
            // `first` may be that of a stale one now: a look for nothing, as that one would have
            // been.
            bucket.entries.retain(|e| !e.is_stale());
            self.len += bucket.entries.len();
            !bucket.entries.is_empty()
        });
        self.stale = 0;
        self.sweep_at = (self.len * 2).max(1024);
    }

    /// The caller has made one entry stale.
    pub(crate) fn disarmed(&mut self) {
        self.stale += 1;
        if self.stale > 64 && self.stale > self.len / 2 {
            self.sweep();
        }
    }

    /// When the next one is due, stale or not.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        // Whatever is near is before whatever is far.
        self.near
            .peek()
            .map(|Reverse(e)| e.at)
            .or_else(|| self.far.values().next().map(|bucket| bucket.first))
    }

    /// When a VP that idles at `now` should wake up for them: when the next one is due, or a little
    /// later if another one is due soon after it.
    pub(crate) fn next_wakeup(&mut self, now: u64) -> Option<u64> {
        self.open(now);
        if let (true, Some(bucket)) = (self.near.is_empty(), self.far.values().next()) {
            // Unsorted as yet: on average they are closer than that.
            let crowded = bucket.entries.len() as u64 > (1 << BUCKET) / SLACK;
            return Some(bucket.first.saturating_add(if crowded { SLACK } else { 0 }));
        }
        let mut entries = self.near.as_slice().iter().map(|Reverse(e)| e.at);
        let first = entries.next()?;
        // In a binary heap the second one is one of the next two.
        let crowded = entries.take(2).any(|at| at <= first.saturating_add(SLACK));
        Some(if crowded { first.saturating_add(SLACK) } else { first })
    }

    /// Those that are due at `now`, or the first of them: as many as `due` holds. Returns how many
    /// came up, stale ones included.
    pub(crate) fn pop_due(&mut self, now: u64, due: &mut [Option<Ref>; BATCH]) -> usize {
        // Most looks find nothing to do.
        if self.next().is_none_or(|at| at > now) {
            return 0;
        }
        self.open(now);
        let mut entries = [None; BATCH];
        let mut n = 0;
        while n < BATCH && self.near.peek().is_some_and(|Reverse(e)| e.at <= now) {
            entries[n] = self.near.pop();
            // Cold among thousands: asked for here, looked at below.
            if let Some(Reverse(entry)) = &entries[n] {
                prefetch::prefetch(std::ptr::from_ref(entry.mp()).cast());
            }
            n += 1;
        }
        self.len -= n;
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
