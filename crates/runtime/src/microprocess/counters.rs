//! Counters of one microprocess: switches, preemptions, waits, wake-up latency and CPU time.
//!
//! They are in the record, and cost a switch one addition on a cache line that it accesses anyway.
//! [`Waits`] has one line of its own, which the end of a wait accesses. The microprocess writes its
//! own counters, so plain stores suffice; the CPU time has several writers and is added atomically.
//! Other threads read everything with plain loads, at any time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::microprocess::wait_reason::Wait;

/// Number of kinds of waits that a microprocess counts apart. The last entry takes every further
/// kind, too, and then has the kind [`OTHERS`].
pub(crate) const KINDS: usize = 4;
/// Kind of an entry that counts waits of several kinds.
pub(crate) const OTHERS: u8 = Wait::KIND;

/// Position of the kind in the word of an entry; the count is below.
const KIND_SHIFT: u32 = 56;
const COUNT: u64 = (1 << KIND_SHIFT) - 1;

/// Adds to a counter that only the caller writes.
#[inline(always)]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// The waits of a microprocess by kind. A kind gets an entry at its first wait.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Waits([Entry; KINDS]);

/// Number and total time of the waits of one kind.
#[derive(Debug)]
#[repr(C)]
struct Entry {
    /// The kind and the number of waits; 0 if the entry is unused.
    word: AtomicU64,
    /// Total time in nanoseconds. Clocks of different VPs may differ by more than a short wait
    /// takes, so the sum can be negative for a moment.
    nanoseconds: AtomicU64,
}

/// Waits of one kind: the encoded kind, their number and their total time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitCount {
    pub(crate) kind: u8,
    pub(crate) count: u64,
    pub(crate) nanoseconds: u64,
}

impl Waits {
    const fn new() -> Waits {
        Waits([const { Entry { word: AtomicU64::new(0), nanoseconds: AtomicU64::new(0) } }; KINDS])
    }

    /// Counts a wait of `kind` that took `nanoseconds`, as a signed number. `has_waits` is the
    /// record's mark: while it is false, the entries are of an earlier life. The microprocess
    /// itself only.
    #[inline(always)]
    pub(crate) fn count(&self, has_waits: &AtomicBool, kind: u8, nanoseconds: u64) {
        let first = &self.0[0];
        let word = first.word.load(Ordering::Relaxed);
        if has_waits.load(Ordering::Relaxed) && (word >> KIND_SHIFT) as u8 == kind {
            first.word.store(word + 1, Ordering::Relaxed);
            add(&first.nanoseconds, nanoseconds);
        } else {
            self.count_further(has_waits, kind, nanoseconds);
        }
    }

    #[inline(never)]
    fn count_further(&self, has_waits: &AtomicBool, kind: u8, nanoseconds: u64) {
        if !has_waits.load(Ordering::Relaxed) {
            self.reset();
            // Release: a reader that finds the mark finds no entry of an earlier life.
            has_waits.store(true, Ordering::Release);
        }
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

    /// Returns the entries in use, none if `has_waits` is false.
    pub(crate) fn read(&self, has_waits: &AtomicBool) -> impl Iterator<Item = WaitCount> + '_ {
        let entries = if has_waits.load(Ordering::Acquire) { &self.0[..] } else { &[] };
        entries.iter().filter_map(|entry| {
            let word = entry.word.load(Ordering::Relaxed);
            (word != 0).then(|| WaitCount {
                kind: (word >> KIND_SHIFT) as u8,
                count: word & COUNT,
                nanoseconds: entry.nanoseconds.load(Ordering::Relaxed).cast_signed().max(0) as u64,
            })
        })
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
    pub(crate) waits: Waits,
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
}

impl Counters {
    pub(crate) const fn new() -> Counters {
        Counters {
            waits: Waits::new(),
            cpu_ns: AtomicU64::new(0),
            woken_at: AtomicU64::new(0),
            latency_ns: AtomicU64::new(0),
            timed_wakes: AtomicU32::new(0),
            preemptions: AtomicU32::new(0),
            switch_carries: AtomicU32::new(0),
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
