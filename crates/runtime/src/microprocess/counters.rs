//! Counters of one microprocess: switches, preemptions, waits, wake-up latency and CPU time.
//!
//! They are in the record, and cost a switch one addition on a cache line that it accesses anyway.
//! The end of a wait adds there, too, if the wait is of the kind of the microprocess's first one;
//! [`FurtherWaits`] has the other kinds. The microprocess writes its own counters, so plain stores
//! suffice; the CPU time has several writers and is added atomically. Other threads read everything
//! with plain loads, at any time.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::microprocess::wait_reason::Wait;

/// Number of kinds of waits that a microprocess counts apart, besides the first one. The last entry
/// takes every further kind, too, and then has the kind [`OTHERS`].
pub(crate) const KINDS: usize = 3;
/// Kind of an entry that counts waits of several kinds.
pub(crate) const OTHERS: u8 = Wait::KIND;
/// The kind of a microprocess that has not ended a wait.
pub(crate) const NO_WAITS: u8 = u8::MAX;
const _: () = assert!(NO_WAITS & !Wait::KIND != 0);

/// Position of the kind in the word of an entry; the count is below.
const KIND_SHIFT: u32 = 56;
const COUNT: u64 = (1 << KIND_SHIFT) - 1;

/// Adds to a counter that only the caller writes.
#[inline(always)]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// The waits of a microprocess of other kinds than the first. A kind gets an entry at its first
/// wait.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FurtherWaits([Entry; KINDS]);

/// Number and total time of the waits of one kind.
#[derive(Debug)]
#[repr(C)]
struct Entry {
    /// The kind and the number of waits; 0 if the entry is unused.
    word: AtomicU64,
    /// Total time in nanoseconds; see [`WaitCounters::nanoseconds`].
    nanoseconds: AtomicU64,
}

/// Waits of one kind: the encoded kind, their number and their total time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitCount {
    pub(crate) kind: u8,
    pub(crate) count: u64,
    pub(crate) nanoseconds: u64,
}

/// Where a microprocess counts its waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitCounters<'a> {
    /// The kind of its first wait. With [`NO_WAITS`], all others are of an earlier life.
    pub(crate) kind: &'a AtomicU8,
    /// Number of waits of that kind, modulo 2^32.
    pub(crate) count: &'a AtomicU32,
    /// The same number divided by 2^32.
    pub(crate) carries: &'a AtomicU32,
    /// Their total time. Clocks of different VPs may differ by more than a short wait takes, so the
    /// sum can be negative for a moment.
    pub(crate) nanoseconds: &'a AtomicU64,
    pub(crate) further: &'a FurtherWaits,
}

impl WaitCounters<'_> {
    /// Counts a wait of `kind` that took `nanoseconds`, as a signed number. The microprocess itself
    /// only.
    #[inline(always)]
    pub(crate) fn count(self, kind: u8, nanoseconds: u64) {
        let count = self.count.load(Ordering::Relaxed).wrapping_add(1);
        if self.kind.load(Ordering::Relaxed) == kind && count != 0 {
            self.count.store(count, Ordering::Relaxed);
            add(self.nanoseconds, nanoseconds);
        } else {
            self.count_further(kind, nanoseconds);
        }
    }

    #[inline(never)]
    fn count_further(self, kind: u8, nanoseconds: u64) {
        let first = self.kind.load(Ordering::Relaxed);
        if first == NO_WAITS {
            self.further.reset();
            self.carries.store(0, Ordering::Relaxed);
            self.count.store(1, Ordering::Relaxed);
            self.nanoseconds.store(nanoseconds, Ordering::Relaxed);
            // Release: a reader that finds the kind finds no counter of an earlier life.
            self.kind.store(kind, Ordering::Release);
        } else if first == kind {
            let carries = self.carries.load(Ordering::Relaxed);
            self.carries.store(carries.wrapping_add(1), Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
            add(self.nanoseconds, nanoseconds);
        } else {
            self.further.count(kind, nanoseconds);
        }
    }

    /// Returns the counters in use, that of the first kind at the beginning.
    pub(crate) fn read(self) -> impl Iterator<Item = WaitCount> {
        let kind = self.kind.load(Ordering::Acquire);
        let is_used = kind != NO_WAITS;
        let first = is_used.then(|| {
            let carries = self.carries.load(Ordering::Relaxed);
            let count = u64::from(carries) << 32 | u64::from(self.count.load(Ordering::Relaxed));
            WaitCount::new(kind, count, self.nanoseconds.load(Ordering::Relaxed))
        });
        let further = if is_used { &self.further.0[..] } else { &[] };
        first.into_iter().chain(further.iter().filter_map(Entry::read))
    }
}

impl WaitCount {
    fn new(kind: u8, count: u64, nanoseconds: u64) -> WaitCount {
        WaitCount { kind, count, nanoseconds: nanoseconds.cast_signed().max(0) as u64 }
    }
}

impl Entry {
    fn read(&self) -> Option<WaitCount> {
        let word = self.word.load(Ordering::Relaxed);
        let nanoseconds = self.nanoseconds.load(Ordering::Relaxed);
        let kind = (word >> KIND_SHIFT) as u8;
        (word != 0).then(|| WaitCount::new(kind, word & COUNT, nanoseconds))
    }
}

impl FurtherWaits {
    const fn new() -> FurtherWaits {
        FurtherWaits(
            [const { Entry { word: AtomicU64::new(0), nanoseconds: AtomicU64::new(0) } }; KINDS],
        )
    }

    fn count(&self, kind: u8, nanoseconds: u64) {
        let last = KINDS - 1;
        let is_place = |entry: &Entry| {
            let word = entry.word.load(Ordering::Relaxed);
            word == 0 || (word >> KIND_SHIFT) as u8 == kind
        };
        let found = self.0.iter().position(is_place);
        let entry = &self.0[found.unwrap_or(last)];
        let count = entry.word.load(Ordering::Relaxed) & COUNT;
        let kind = if found.is_some() { kind } else { OTHERS };
        entry.word.store(u64::from(kind) << KIND_SHIFT | (count + 1), Ordering::Relaxed);
        add(&entry.nanoseconds, nanoseconds);
    }

    fn reset(&self) {
        for entry in &self.0 {
            entry.word.store(0, Ordering::Relaxed);
            entry.nanoseconds.store(0, Ordering::Relaxed);
        }
    }
}

/// The counters that a switch does not access.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Counters {
    pub(crate) further_waits: FurtherWaits,
    /// Nanoseconds of CPU time attributed so far.
    pub(crate) cpu_ns: AtomicU64,
    /// Time of the wake-up, if it is timed (`Mp::wake_is_timed`). Written by the waker.
    pub(crate) woken_at: AtomicU64,
    /// Sum of the latencies of the timed wake-ups, in nanoseconds.
    pub(crate) latency_ns: AtomicU64,
    /// Number of timed wake-ups.
    pub(crate) timed_wakes: AtomicU32,
    pub(crate) preemptions: AtomicU32,
    /// Switches divided by 2^32.
    switch_carries: AtomicU32,
    /// See [`WaitCounters::carries`].
    pub(crate) wait_carries: AtomicU32,
}

impl Counters {
    pub(crate) const fn new() -> Counters {
        Counters {
            further_waits: FurtherWaits::new(),
            cpu_ns: AtomicU64::new(0),
            woken_at: AtomicU64::new(0),
            latency_ns: AtomicU64::new(0),
            timed_wakes: AtomicU32::new(0),
            preemptions: AtomicU32::new(0),
            switch_carries: AtomicU32::new(0),
            wait_carries: AtomicU32::new(0),
        }
    }

    /// Counts a wake-up after which the microprocess ran `nanoseconds` later. The microprocess
    /// itself only.
    pub(crate) fn count_latency(&self, nanoseconds: u64) {
        add(&self.latency_ns, nanoseconds);
        let n = self.timed_wakes.load(Ordering::Relaxed);
        self.timed_wakes.store(n.wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts a preemption. The microprocess itself only.
    pub(crate) fn count_preemption(&self) {
        let n = self.preemptions.load(Ordering::Relaxed);
        self.preemptions.store(n.wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts 2^32 switches. The microprocess itself only.
    #[cold]
    pub(crate) fn carry_switches(&self, is_used: &AtomicBool) {
        is_used.store(true, Ordering::Relaxed);
        let n = self.switch_carries.load(Ordering::Relaxed);
        self.switch_carries.store(n.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the switches that were carried, a multiple of 2^32.
    pub(crate) fn switches_above(&self) -> u64 {
        u64::from(self.switch_carries.load(Ordering::Relaxed)) << 32
    }

    /// Adds CPU time. `is_used` is the record's mark for counters that are not zero.
    pub(crate) fn add_cpu(&self, is_used: &AtomicBool, nanoseconds: u64) {
        self.cpu_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        is_used.store(true, Ordering::Relaxed);
    }

    /// Sets all counters except the waits to zero, for another life of the record.
    #[cold]
    pub(crate) fn reset(&self) {
        self.cpu_ns.store(0, Ordering::Relaxed);
        self.latency_ns.store(0, Ordering::Relaxed);
        self.timed_wakes.store(0, Ordering::Relaxed);
        self.preemptions.store(0, Ordering::Relaxed);
        self.switch_carries.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
