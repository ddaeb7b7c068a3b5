//! The parts of a VP's queue that other VPs access: published load, counters, injector and surplus
//! slot.

use super::injector::Injector;
use super::surplus_slot::SurplusSlot;
use crate::loom::{AtomicU32, AtomicU64, Ordering, Padded};
use crate::node::Node;

/// Counters of one VP's queue since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items that came from another VP's queue; injected ones are not counted.
    pub migrations: u64,
    /// Batches put into this VP's Waiver Queue.
    pub waiver_passes: u64,
    /// Items offered to idle VPs.
    pub offers: u64,
    /// Offered items that the owner took back.
    pub offers_back: u64,
    /// Times that this VP found a queue's lock held (`locked` only).
    pub lock_waits: u64,
    /// Times that this VP acquired a queue's lock (`locked` only).
    pub locks: u64,
    /// Races for an item that this VP lost (`steal` only).
    pub steal_retries: u64,
}

/// A counter with one writer: a plain load and store, no read-modify-write.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: usize) {
        let old = self.0.load(Ordering::Relaxed);
        self.0.store(old.wrapping_add(n as u64), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bit of `closed`: the VP makes no progress.
pub(crate) const STUCK: u32 = 1;
/// Bit of `closed`: the VP is beyond the number of cores that the process may use.
pub(crate) const RETIRED: u32 = 2;

/// Written by the owner, except `closed`; read by any thread.
#[derive(Default)]
pub(crate) struct PublishedLoad {
    /// Runnable items, including the running one, at the time of publication.
    pub(crate) load: AtomicU32,
    pub(crate) levels: AtomicU64,
    /// Why the VP is given no items that only it can take; 0 if it is: see
    /// [`Set::set_stuck`](crate::Set::set_stuck) and
    /// [`Set::set_retired`](crate::Set::set_retired).
    pub(crate) closed: AtomicU32,
    pub(crate) migrations: Counter,
    pub(crate) waiver_passes: Counter,
    pub(crate) offers: Counter,
    pub(crate) offers_back: Counter,
    pub(crate) lock_waits: Counter,
    pub(crate) locks: Counter,
    pub(crate) steal_retries: Counter,
}

/// The part of a VP's queue that other kernel threads access, in every design.
pub(crate) struct SharedSide<T: Node> {
    pub(crate) shown: Padded<PublishedLoad>,
    pub(crate) injector: Padded<Injector<T>>,
    pub(crate) offer: Padded<SurplusSlot<T>>,
}

impl<T: Node> SharedSide<T> {
    pub(crate) fn new() -> SharedSide<T> {
        SharedSide {
            shown: Padded(PublishedLoad::default()),
            injector: Padded(Injector::new()),
            offer: Padded(SurplusSlot::new()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shown.closed.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_closed(&self, bit: u32, is: bool) {
        let closed = &self.shown.closed;
        if is {
            closed.fetch_or(bit, Ordering::Relaxed);
        } else {
            closed.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn publish(&self, load: usize, levels: u64) {
        let s = &self.shown;
        // Stores only changed values, because a store takes the cache line away from its readers.
        if s.load.load(Ordering::Relaxed) != load as u32 {
            s.load.store(load as u32, Ordering::Relaxed);
        }
        if s.levels.load(Ordering::Relaxed) != levels {
            s.levels.store(levels, Ordering::Relaxed);
        }
    }

    /// Returns the load and the bitmap of levels as last published.
    pub(crate) fn shown(&self) -> (usize, u64) {
        let s = &self.shown;
        (s.load.load(Ordering::Relaxed) as usize, s.levels.load(Ordering::Relaxed))
    }

    pub(crate) fn stats(&self) -> Stats {
        let s = &self.shown;
        Stats {
            migrations: s.migrations.get(),
            waiver_passes: s.waiver_passes.get(),
            offers: s.offers.get(),
            offers_back: s.offers_back.get(),
            lock_waits: s.lock_waits.get(),
            locks: s.locks.get(),
            steal_retries: s.steal_retries.get(),
        }
    }
}
