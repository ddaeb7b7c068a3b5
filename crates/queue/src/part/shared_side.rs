//! What each VP shows of itself: published load and counters, and the ends that others use.

use super::injector::Injector;
use super::surplus_slot::SurplusSlot;
use crate::loom::{AtomicU32, AtomicU64, Flag, Ordering, Padded};
use crate::node::Node;

/// What one VP's queue has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items that came here from another VP's queue (injected ones not counted).
    pub migrations: u64,
    /// Times that a batch was put into this VP's Waiver Queue.
    pub waiver_passes: u64,
    /// Items offered to idle VPs.
    pub offers: u64,
    /// Of those, taken back by the owner.
    pub offers_back: u64,
    /// Times that this VP found a queue's lock taken (`locked` only).
    pub lock_waits: u64,
    /// Times that it took a queue's lock (`locked` only).
    pub locks: u64,
    /// Times that it lost a race for an item (`steal` only).
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

/// Written by the owner, but for `stuck`; read by anyone.
#[derive(Default)]
pub(crate) struct PublishedLoad {
    /// Runnable items, the running one included, as of the last time it was published.
    pub(crate) load: AtomicU32,
    pub(crate) levels: AtomicU64,
    /// See [`Set::set_stuck`](crate::Set::set_stuck).
    pub(crate) stuck: Flag,
    pub(crate) migrations: Counter,
    pub(crate) waiver_passes: Counter,
    pub(crate) offers: Counter,
    pub(crate) offers_back: Counter,
    pub(crate) lock_waits: Counter,
    pub(crate) locks: Counter,
    pub(crate) steal_retries: Counter,
}

/// A VP's part that other kernel threads touch, in every design.
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

    pub(crate) fn is_stuck(&self) -> bool {
        self.shown.stuck.load(Ordering::Relaxed)
    }

    pub(crate) fn publish(&self, load: usize, levels: u64) {
        let s = &self.shown;
        // A store takes the cache line from its readers: only when there is news.
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
