//! The queues of all VPs, and each VP's access to the queues of the others.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::loom::Ordering;
use crate::node::Node;
use crate::part::shared_side::SharedSide;

/// One VP's queue, as other VPs access it.
pub(crate) trait Peer<T: Node> {
    fn shared(&self) -> &SharedSide<T>;
    /// Returns the number of items in transit, that is, in no Protect Queue.
    fn on_the_way(&self) -> usize;
}

/// The queues of all VPs, at a fixed address.
pub(crate) struct QueueArray<Q> {
    base: NonNull<Q>,
    n: usize,
}

// SAFETY: a `QueueArray` owns its `Q`s as a box does.
unsafe impl<Q: Send> Send for QueueArray<Q> {}
// SAFETY: a shared `QueueArray` gives out only shared references.
unsafe impl<Q: Sync> Sync for QueueArray<Q> {}

impl<Q> QueueArray<Q> {
    /// Creates `n` queues, and then calls `join` on each with its peers.
    pub(crate) fn new(
        n: usize,
        make: impl FnMut(usize) -> Q,
        join: impl Fn(&mut Q, Peers<Q>),
    ) -> QueueArray<Q> {
        let boxed: Box<[Q]> = (0..n).map(make).collect::<Vec<Q>>().into_boxed_slice();
        // Leaked, because the queues point to each other, and a box requires exclusive access to
        // its content.
        let base = NonNull::from(Box::leak(boxed)).cast::<Q>();
        for vp in 0..n {
            // SAFETY: the pointer is within the leaked slice, to which no other reference exists
            // yet.
            join(unsafe { base.add(vp).as_mut() }, Peers { base, n, vp });
        }
        QueueArray { base, n }
    }

    #[inline]
    pub(crate) fn get(&self, vp: usize) -> &Q {
        assert!(vp < self.n, "VP {vp} of {}", self.n);
        // SAFETY: the pointer is within the slice, which lives as long as the array.
        unsafe { self.base.add(vp).as_ref() }
    }
}

impl<Q> Drop for QueueArray<Q> {
    fn drop(&mut self) {
        // SAFETY: this is the slice that `new` leaked.
        drop(unsafe {
            Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.n))
        });
    }
}

/// One VP's access to the other VPs' queues.
pub(crate) struct Peers<Q> {
    base: NonNull<Q>,
    n: usize,
    vp: usize,
}

impl<Q> Peers<Q> {
    /// Returns a placeholder until `QueueArray::new` calls `join`.
    pub(crate) fn none() -> Peers<Q> {
        Peers { base: NonNull::dangling(), n: 0, vp: 0 }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.n
    }

    /// Returns the queue of VP `i`, which must be below `count()`.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> &Q {
        debug_assert!(i < self.n);
        // SAFETY: the pointer is within the array, whose queues live until all are dropped.
        unsafe { self.base.add(i).as_ref() }
    }

    /// Returns the neighbour from which this VP takes items; a single VP is its own neighbour.
    pub(crate) fn previous_ptr(&self) -> NonNull<Q> {
        let previous = if self.vp == 0 { self.n - 1 } else { self.vp - 1 };
        // SAFETY: the pointer is within the array.
        unsafe { self.base.add(previous) }
    }

    /// Returns the same neighbour as `previous_ptr`.
    #[inline]
    pub(crate) fn previous(&self) -> &Q {
        // SAFETY: the pointer is within the array, whose queues live until all are dropped.
        unsafe { self.previous_ptr().as_ref() }
    }

    /// Returns the neighbour that takes items from this VP.
    pub(crate) fn next(&self) -> usize {
        if self.vp + 1 == self.n { 0 } else { self.vp + 1 }
    }

    /// Iterates over all other VPs, starting at an offset of `turn`, so that idle VPs do not all
    /// start with the same one.
    pub(crate) fn others(&self, turn: usize) -> impl Iterator<Item = &Q> {
        let others = self.n - 1;
        (0..others).map(move |i| {
            let step = 1 + (turn + i) % others;
            let at = self.vp + step;
            self.get(if at >= self.n { at - self.n } else { at })
        })
    }

    /// Returns the number of exchanges between two evaluations that read all VPs' loads. On
    /// average, an exchange then reads at most one other VP's cache line.
    pub(crate) fn period(&self) -> u32 {
        self.n.max(16) as u32
    }

    /// Returns how many items this VP, which has `load` items now, should have.
    pub(crate) fn share<T: Node>(&self, load: usize) -> usize
    where
        Q: Peer<T>,
    {
        let mut total = load + self.get(self.vp).on_the_way();
        // A closed VP takes no share. Retired VPs are the last ones.
        let mut open = 1;
        for other in self.others(0) {
            total +=
                other.shared().shown.load.load(Ordering::Relaxed) as usize + other.on_the_way();
            open += usize::from(!other.shared().is_closed());
        }
        (total / open + usize::from(self.vp < total % open)).max(1)
    }
}
