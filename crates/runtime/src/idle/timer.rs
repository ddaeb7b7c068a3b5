//! Timers of one VP, without a kernel object per timer and without a scan per tick.
//!
//! Timers that are due within the current two milliseconds are in a heap small enough for the
//! caches. The others are unsorted, in one bucket for each later interval of two milliseconds,
//! until that interval comes. (A single heap of a hundred thousand timers costs a cache miss per
//! level.)
//!
//! No entry is ever searched for. A wait that ends early only increments its microprocess's timer
//! number, which makes the entry stale. Stale entries are dropped when they are due, or all at once
//! when they are the majority or the number of entries has doubled. A timer that fires is a plain
//! wake-up, and `park` may return spuriously anyway, so a race between the two costs one spurious
//! return at most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::Ordering;

use crate::microprocess::prefetch;
use crate::microprocess::record::{Mp, Ref};

/// Number of timers served at once.
pub(crate) const BATCH: usize = 16;

/// How late an idle VP may be, in nanoseconds, if it serves several timers at once in this way.
/// (The kernel's default timer slack is half of that, PR_SET_TIMERSLACK in prctl(2); a sleep and a
/// wake-up take a tenth.)
const SLACK: u64 = 100_000;

/// Width of a bucket, as a shift of nanoseconds.
const BUCKET: u32 = 21;

/// A timer. Sixteen bytes, because a hundred thousand of them need many cache lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerEntry {
    /// Due time on the runtime's clock, in nanoseconds.
    at: u64,
    /// The record's address in units of its alignment, above as many bits of its timer number as
    /// fit.
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
        // SAFETY: `new` encoded the record's address; records live for ever.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }

    /// Whether the wait ended before the timer was due. The number alone decides, whatever life of
    /// the record the entry is from.
    fn is_stale(self) -> bool {
        u64::from(self.mp().timer.load(Ordering::Relaxed)) & NUMBER != self.who & NUMBER
    }
}

/// The timers of one interval, unordered; never empty.
struct Bucket {
    first: u64,
    entries: Vec<TimerEntry>,
}

#[derive(Default)]
pub(crate) struct Timers {
    near: BinaryHeap<Reverse<TimerEntry>>,
    /// Buckets by `at >> BUCKET`; all keys are at least `opened`.
    far: BTreeMap<u64, Bucket>,
    /// Buckets below this one have been emptied into `near`.
    opened: u64,
    len: usize,
    /// Number of waits on this VP's entries that ended early on this VP. Those that ended on other
    /// VPs are not counted.
    stale: usize,
    /// Number of entries at which all entries are checked for staleness.
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

    /// Moves the buckets up to that of `now` into `near`.
    fn open(&mut self, now: u64) {
        self.opened = self.opened.max((now >> BUCKET) + 1);
        while let Some(bucket) = self.far.first_entry().filter(|b| *b.key() < self.opened) {
            self.near.extend(bucket.remove().entries.into_iter().map(Reverse));
        }
    }

    /// Removes all stale entries. Called only when the number of entries has doubled, so its cost
    /// is a constant share of the cost of arming.
    #[cold]
    fn sweep(&mut self) {
        self.near.retain(|Reverse(e)| !e.is_stale());
        self.len = self.near.len();
        self.far.retain(|_, bucket| {
            // `first` may belong to a removed entry now. That causes one superfluous check, as the
            // stale entry would have.
            bucket.entries.retain(|e| !e.is_stale());
            self.len += bucket.entries.len();
            !bucket.entries.is_empty()
        });
        self.stale = 0;
        self.sweep_at = (self.len * 2).max(1024);
    }

    /// Records that the caller has made one entry stale.
    pub(crate) fn disarmed(&mut self) {
        self.stale += 1;
        if self.stale > 64 && self.stale > self.len / 2 {
            self.sweep();
        }
    }

    /// Returns when the next timer is due, stale or not.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        // All timers in `near` are due before those in `far`.
        self.near
            .peek()
            .map(|Reverse(e)| e.at)
            .or_else(|| self.far.values().next().map(|bucket| bucket.first))
    }

    /// Returns when a VP that is idle at `now` should wake up for its timers. That is when the next
    /// timer is due, or a little later if another timer is due soon after it.
    pub(crate) fn next_wakeup(&mut self, now: u64) -> Option<u64> {
        self.open(now);
        if let (true, Some(bucket)) = (self.near.is_empty(), self.far.values().next()) {
            // Unsorted as yet: their average distance is smaller than the slack.
            let crowded = bucket.entries.len() as u64 > (1 << BUCKET) / SLACK;
            return Some(bucket.first.saturating_add(if crowded { SLACK } else { 0 }));
        }
        let mut entries = self.near.as_slice().iter().map(|Reverse(e)| e.at);
        let first = entries.next()?;
        // In a binary heap, the second smallest element is one of the two after the root.
        let crowded = entries.take(2).any(|at| at <= first.saturating_add(SLACK));
        Some(if crowded { first.saturating_add(SLACK) } else { first })
    }

    /// Removes timers that are due at `now`, up to the capacity of `due`, and stores their
    /// microprocesses there. Returns the number of removed timers, including stale ones.
    pub(crate) fn pop_due(&mut self, now: u64, due: &mut [Option<Ref>; BATCH]) -> usize {
        // Most calls find no due timer.
        if self.next().is_none_or(|at| at > now) {
            return 0;
        }
        self.open(now);
        let mut entries = [None; BATCH];
        let mut n = 0;
        while n < BATCH && self.near.peek().is_some_and(|Reverse(e)| e.at <= now) {
            entries[n] = self.near.pop();
            // Cold among thousands: prefetched here, accessed below.
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

    /// Removes all timers and returns those that are not stale, for another VP.
    pub(crate) fn take_all(&mut self) -> Vec<TimerEntry> {
        if self.len == 0 {
            return Vec::new();
        }
        self.sweep();
        let all = std::mem::take(self);
        let near = all.near.into_iter().map(|Reverse(entry)| entry);
        near.chain(all.far.into_values().flat_map(|bucket| bucket.entries)).collect()
    }

    /// Adds timers that another VP has [given up](Timers::take_all).
    pub(crate) fn adopt(&mut self, entries: impl Iterator<Item = TimerEntry>) {
        entries.for_each(|entry| self.insert(entry));
    }

    /// Drops all timers, because the runtime has ended.
    pub(crate) fn clear(&mut self) {
        *self = Timers::default();
    }
}
