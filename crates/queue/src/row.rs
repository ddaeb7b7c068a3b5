//! What the three designs share: the row of all VPs' queues, what each VP shows of itself, and the
//! capacity rule.

use alloc::{boxed::Box, vec::Vec};
use core::ptr::NonNull;

use crate::{
    atomic::{AtomicU32, AtomicU64, Flag, Ordering, Padded},
    injector::Injector,
    node::Node,
    offer::Offer,
};

/// How many items a VP keeps for itself; the rest is *surplus*, for others.
///
/// The running item counts as one of the VP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// A fixed number of queued items, as in the paper. 0 is taken as 1: a VP keeps something to
    /// switch to.
    Fixed(usize),
    /// A fair share of all runnable items, computed from what every VP says it has (so: from
    /// slightly old numbers). With `total` items and `n` VPs, VP i's share is `total / n`, plus one
    /// for the first `total % n` VPs, and at least one. A VP that has more than its share plus
    /// `slack` gives away what exceeds its share. The slack is what keeps items from wandering when
    /// one more or less is runnable; the exact shares are what lets the ring come to rest evenly.
    FairShare {
        /// Items above the share that start no move.
        slack: usize,
    },
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity::FairShare { slack: 1 }
    }
}

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
pub(crate) struct Shown {
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
pub(crate) struct Face<T: Node> {
    pub(crate) shown: Padded<Shown>,
    pub(crate) injector: Padded<Injector<T>>,
    pub(crate) offer: Padded<Offer<T>>,
}

impl<T: Node> Face<T> {
    pub(crate) fn new() -> Face<T> {
        Face {
            shown: Padded(Shown::default()),
            injector: Padded(Injector::new()),
            offer: Padded(Offer::new()),
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

/// One VP's queue as the others see it.
pub(crate) trait Member<T: Node> {
    fn face(&self) -> &Face<T>;
    /// Items on their way: in no Protect Queue.
    fn on_the_way(&self) -> usize;
}

/// The queues of all VPs, at a fixed address.
pub(crate) struct Row<Q> {
    base: NonNull<Q>,
    n: usize,
}

// SAFETY: a `Row` owns its `Q`s as a box would.
unsafe impl<Q: Send> Send for Row<Q> {}
// SAFETY: and lends them out shared.
unsafe impl<Q: Sync> Sync for Row<Q> {}

impl<Q> Row<Q> {
    /// Makes `n` queues, then tells each where its peers are.
    pub(crate) fn new(
        n: usize,
        make: impl FnMut(usize) -> Q,
        join: impl Fn(&mut Q, Peers<Q>),
    ) -> Row<Q> {
        let boxed: Box<[Q]> = (0..n).map(make).collect::<Vec<Q>>().into_boxed_slice();
        // Given up as a box: its queues point at each other, and a box claims to be the only way to
        // its content.
        let base = NonNull::from(Box::leak(boxed)).cast::<Q>();
        for vp in 0..n {
            // SAFETY: within the slice just leaked; nobody else has a reference yet.
            join(unsafe { base.add(vp).as_mut() }, Peers { base, n, vp });
        }
        Row { base, n }
    }

    #[inline]
    pub(crate) fn get(&self, vp: usize) -> &Q {
        assert!(vp < self.n, "VP {vp} of {}", self.n);
        // SAFETY: within the slice, which lives as long as the row.
        unsafe { self.base.add(vp).as_ref() }
    }
}

impl<Q> Drop for Row<Q> {
    fn drop(&mut self) {
        // SAFETY: the very slice that `new` leaked.
        drop(unsafe {
            Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.n))
        });
    }
}

/// A VP's way to the other VPs' queues.
pub(crate) struct Peers<Q> {
    base: NonNull<Q>,
    n: usize,
    vp: usize,
}

impl<Q> Peers<Q> {
    /// Stands for the peers until `Row::new` has told them.
    pub(crate) fn none() -> Peers<Q> {
        Peers { base: NonNull::dangling(), n: 0, vp: 0 }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.n
    }

    /// `i` < `count()`.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> &Q {
        debug_assert!(i < self.n);
        // SAFETY: within the row, whose queues live until all are dropped.
        unsafe { self.base.add(i).as_ref() }
    }

    /// The neighbour that this VP takes from: itself if it is alone.
    pub(crate) fn previous_ptr(&self) -> NonNull<Q> {
        let previous = if self.vp == 0 { self.n - 1 } else { self.vp - 1 };
        // SAFETY: within the row.
        unsafe { self.base.add(previous) }
    }

    /// As `previous_ptr`.
    #[inline]
    pub(crate) fn previous(&self) -> &Q {
        // SAFETY: within the row, whose queues live until all are dropped.
        unsafe { self.previous_ptr().as_ref() }
    }

    /// The neighbour that takes from this VP.
    pub(crate) fn next(&self) -> usize {
        if self.vp + 1 == self.n { 0 } else { self.vp + 1 }
    }

    /// All others, beginning `turn` places on, so that not all idle VPs fall upon the same one.
    pub(crate) fn others(&self, turn: usize) -> impl Iterator<Item = &Q> {
        let others = self.n - 1;
        (0..others).map(move |i| {
            let step = 1 + (turn + i) % others;
            let at = self.vp + step;
            self.get(if at >= self.n { at - self.n } else { at })
        })
    }

    /// How many exchanges go by between two looks at all VPs: at most one VP's line per exchange on
    /// average.
    pub(crate) fn period(&self) -> u32 {
        self.n.max(16) as u32
    }

    /// How many items this VP, which has `load` now, should have.
    pub(crate) fn share<T: Node>(&self, load: usize) -> usize
    where
        Q: Member<T>,
    {
        let mut total = load + self.get(self.vp).on_the_way();
        for other in self.others(0) {
            total += other.face().shown.load.load(Ordering::Relaxed) as usize + other.on_the_way();
        }
        (total / self.n + usize::from(self.vp < total % self.n)).max(1)
    }
}

/// A VP's view of the capacity rule.
pub(crate) struct Limit {
    rule: Capacity,
    /// Queued items up to which nothing has to be looked at.
    pub(crate) queued: usize,
}

impl Limit {
    pub(crate) fn new(rule: Capacity, n_vps: usize) -> Limit {
        // Alone, nothing is ever surplus.
        Limit { rule, queued: if n_vps == 1 { usize::MAX } else { 0 } }
    }

    /// What is surplus cannot go now: do not look again before the next tick, or before there is an
    /// eighth more of it. (A parent that spawns a hundred thousand would look at all VPs each
    /// time.)
    pub(crate) fn put_off(&mut self, queued: usize) {
        if queued > self.queued {
            self.queued = queued.saturating_add(queued / 8);
        }
    }

    /// How many items a VP that has none should get.
    #[cfg(feature = "lab")]
    pub(crate) fn portion<T: Node, Q: Member<T>>(&self, peers: &Peers<Q>) -> usize {
        match self.rule {
            Capacity::Fixed(n) => n.max(1),
            Capacity::FairShare { .. } => peers.share(0),
        }
    }

    /// Looks at all VPs again. Returns how many of `queued` items are surplus, given that `running`
    /// others (0 or 1) run here and stay.
    pub(crate) fn renew<T: Node, Q: Member<T>>(
        &mut self,
        queued: usize,
        running: usize,
        peers: &Peers<Q>,
    ) -> usize {
        if peers.count() == 1 {
            return 0;
        }
        let (keep, slack) = match self.rule {
            Capacity::Fixed(n) => (n.max(1), 0),
            // At least one item is left to run in any case.
            Capacity::FairShare { slack } => (peers.share(queued + running) - running, slack),
        };
        self.queued = keep.saturating_add(slack);
        if queued > self.queued { queued - keep } else { 0 }
    }
}
