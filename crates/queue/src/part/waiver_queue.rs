//! The Waiver Queue: what a VP gives away.
//!
//! A bounded ring of pointers with one producer (the owner) and one consumer at a time. No
//! read-modify-write: the producer publishes with a release store of `tail`, the consumer returns
//! the places with a release store of `head`. In the `ring` design the consumer is the next VP, for
//! good; in `locked` it is the holder of the queue's lock.

use alloc::boxed::Box;
use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicUsize, Cell, Ordering, Padded};

/// Places of a Waiver Queue unless told otherwise.
pub const WAIVER_PLACES: usize = 256;

/// One end: a count that never goes back.
struct End {
    /// For the other end.
    shown: AtomicUsize,
    /// For this end, which need not ask memory that the other end reads for its own count.
    own: Cell<usize>,
}

impl End {
    fn new() -> Padded<End> {
        Padded(End { shown: AtomicUsize::new(0), own: Cell::new(0) })
    }
}

/// Single-producer single-consumer queue of pointers.
pub struct WaiverQueue<T> {
    /// How many were put in. The producer's.
    tail: Padded<End>,
    /// How many were taken out. The consumer's.
    head: Padded<End>,
    places: Box<[Cell<*mut T>]>,
}

// SAFETY: each end's own count is for the thread that has that end. A place is written by the
// producer before it publishes it through `tail` and read by the consumer after it saw that; it is
// written again only after the consumer returned it through `head`. Items are plain pointers; their
// receivers are held to `Node`'s contract.
unsafe impl<T> Sync for WaiverQueue<T> {}
// SAFETY: as above.
unsafe impl<T> Send for WaiverQueue<T> {}

impl<T> WaiverQueue<T> {
    /// An empty queue.
    ///
    /// # Panics
    /// If `places` is not a power of two.
    pub fn new(places: usize) -> WaiverQueue<T> {
        assert!(places.is_power_of_two(), "places of a Waiver Queue: a power of two");
        WaiverQueue {
            tail: End::new(),
            head: End::new(),
            places: (0..places).map(|_| Cell::new(null_mut())).collect(),
        }
    }

    #[inline]
    fn place(&self, at: usize) -> &Cell<*mut T> {
        &self.places[at & (self.places.len() - 1)]
    }

    /// Whether nothing is in it; any kernel thread may ask.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether something is in it, for the consumer: one load from the producer's memory.
    ///
    /// # Safety
    /// The caller is the only consumer.
    #[inline]
    pub unsafe fn has_some(&self) -> bool {
        self.tail.shown.load(Ordering::Relaxed) != self.head.own.get()
    }

    /// Items in it; for producer and consumer a bound, for others a guess.
    #[inline]
    pub fn len(&self) -> usize {
        let head = self.head.shown.load(Ordering::Relaxed);
        self.tail.shown.load(Ordering::Relaxed).wrapping_sub(head).min(self.places.len())
    }

    /// Places.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Starts to fill it; what was put in becomes visible, all at once, when the `BatchWriter`
    /// goes.
    ///
    /// # Safety
    /// The caller is the only producer for the life of the `BatchWriter`.
    #[inline]
    pub unsafe fn fill(&self) -> BatchWriter<'_, T> {
        let tail = self.tail.own.get();
        // Acquire: the consumer's reads of the places it returned come before our writes.
        let head = self.head.shown.load(Ordering::Acquire);
        BatchWriter {
            waiver: self,
            start: tail,
            tail,
            free: self.places.len() - tail.wrapping_sub(head),
        }
    }

    /// Takes up to `most` items, first in first out, and returns their number.
    ///
    /// # Safety
    /// The caller is the only consumer until this returns. `out` must not come back into this
    /// queue.
    #[inline]
    pub unsafe fn take(&self, most: usize, mut out: impl FnMut(NonNull<T>)) -> usize {
        let head = self.head.own.get();
        // Acquire: pairs with the release in `BatchWriter::drop`; the places, and all the producer
        // did to the items, are visible.
        let tail = self.tail.shown.load(Ordering::Acquire);
        let n = tail.wrapping_sub(head).min(most);
        for i in 0..n {
            if let Some(item) = NonNull::new(self.place(head.wrapping_add(i)).get()) {
                out(item);
            }
        }
        if n > 0 {
            self.head.own.set(head.wrapping_add(n));
            // Release: our reads of the places come before the producer's next writes.
            self.head.shown.store(head.wrapping_add(n), Ordering::Release);
        }
        n
    }
}

/// A producer's turn at a Waiver Queue.
pub struct BatchWriter<'a, T> {
    waiver: &'a WaiverQueue<T>,
    start: usize,
    tail: usize,
    free: usize,
}

impl<T> BatchWriter<'_, T> {
    /// How many more it takes.
    #[inline]
    pub fn free(&self) -> usize {
        self.free
    }

    /// Whether it was empty when the turn began. (What the consumer has taken since makes no room
    /// for this turn.)
    #[inline]
    pub fn began_empty(&self) -> bool {
        self.free + self.tail.wrapping_sub(self.start) == self.waiver.places.len()
    }

    /// Puts an item in.
    ///
    /// # Errors
    /// The item, if it is full.
    #[inline]
    pub fn push(&mut self, item: NonNull<T>) -> Result<(), NonNull<T>> {
        if self.free == 0 {
            return Err(item);
        }
        self.waiver.place(self.tail).set(item.as_ptr());
        self.tail = self.tail.wrapping_add(1);
        self.free -= 1;
        Ok(())
    }
}

impl<T> Drop for BatchWriter<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.tail != self.start {
            self.waiver.tail.own.set(self.tail);
            // Release: places and items are written before they can be seen.
            self.waiver.tail.shown.store(self.tail, Ordering::Release);
        }
    }
}
