//! The queues of all VPs, and each VP's way to those of the others.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::loom::Ordering;
use crate::node::Node;
use crate::part::shared_side::SharedSide;

/// One VP's queue as the others see it.
pub(crate) trait Peer<T: Node> {
    fn shared(&self) -> &SharedSide<T>;
    /// Items on their way: in no Protect Queue.
    fn on_the_way(&self) -> usize;
}

/// The queues of all VPs, at a fixed address.
pub(crate) struct QueueArray<Q> {
    base: NonNull<Q>,
    n: usize,
}

// SAFETY: a `QueueArray` owns its `Q`s as a box would.
unsafe impl<Q: Send> Send for QueueArray<Q> {}
// SAFETY: and lends them out shared.
unsafe impl<Q: Sync> Sync for QueueArray<Q> {}

impl<Q> QueueArray<Q> {
    /// Makes `n` queues, then tells each where its peers are.
    pub(crate) fn new(
        n: usize,
        make: impl FnMut(usize) -> Q,
        join: impl Fn(&mut Q, Peers<Q>),
    ) -> QueueArray<Q> {
        let boxed: Box<[Q]> = (0..n).map(make).collect::<Vec<Q>>().into_boxed_slice();
        // Given up as a box: its queues point at each other, and a box claims to be the only way to
        // its content.
        let base = NonNull::from(Box::leak(boxed)).cast::<Q>();
        for vp in 0..n {
            // SAFETY: within the slice just leaked; nobody else has a reference yet.
            join(unsafe { base.add(vp).as_mut() }, Peers { base, n, vp });
        }
        QueueArray { base, n }
    }

    #[inline]
    pub(crate) fn get(&self, vp: usize) -> &Q {
        assert!(vp < self.n, "VP {vp} of {}", self.n);
        // SAFETY: within the slice, which lives as long as the array.
        unsafe { self.base.add(vp).as_ref() }
    }
}

impl<Q> Drop for QueueArray<Q> {
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
    /// Stands for the peers until `QueueArray::new` has told them.
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
        // SAFETY: within the array, whose queues live until all are dropped.
        unsafe { self.base.add(i).as_ref() }
    }

    /// The neighbour that this VP takes from: itself if it is alone.
    pub(crate) fn previous_ptr(&self) -> NonNull<Q> {
        let previous = if self.vp == 0 { self.n - 1 } else { self.vp - 1 };
        // SAFETY: within the array.
        unsafe { self.base.add(previous) }
    }

    /// As `previous_ptr`.
    #[inline]
    pub(crate) fn previous(&self) -> &Q {
        // SAFETY: within the array, whose queues live until all are dropped.
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
        Q: Peer<T>,
    {
        let mut total = load + self.get(self.vp).on_the_way();
        for other in self.others(0) {
            total +=
                other.shared().shown.load.load(Ordering::Relaxed) as usize + other.on_the_way();
        }
        (total / self.n + usize::from(self.vp < total % self.n)).max(1)
    }
}
