//! Waiver Queue: the items that a VP gives away.
//!
//! A bounded ring buffer of pointers with one producer (the owner) and one consumer at a time.
//! There is no read-modify-write: the producer publishes items with a release store of `tail`, and
//! the consumer returns places with a release store of `head`. In the `ring` design, the consumer
//! is always the next VP. In `locked`, it is the holder of the queue's lock.

use alloc::boxed::Box;
use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicUsize, Cell, Ordering, Padded};

/// Default number of places of a Waiver Queue.
pub const WAIVER_PLACES: usize = 256;

/// One end of the queue: a count that never decreases.
struct End {
    /// The count as published to the other end.
    shown: AtomicUsize,
    /// The count for this end's own use, which avoids reading the line that the other end reads.
    own: Cell<usize>,
}

impl End {
    fn new() -> Padded<End> {
        Padded(End { shown: AtomicUsize::new(0), own: Cell::new(0) })
    }
}

/// Single-producer single-consumer queue of pointers.
pub struct WaiverQueue<T> {
    /// Number of items put in. Belongs to the producer.
    tail: Padded<End>,
    /// Number of items taken out. Belongs to the consumer.
    head: Padded<End>,
    places: Box<[Cell<*mut T>]>,
}

// SAFETY: only the thread at an end accesses that end's own count. The producer writes a place
// before it publishes the place through `tail`, and the consumer reads it after that. The producer
// writes it again only after the consumer has returned it through `head`. Items are plain pointers,
// whose users follow the contract of `Node`.
unsafe impl<T> Sync for WaiverQueue<T> {}
// SAFETY: as above.
unsafe impl<T> Send for WaiverQueue<T> {}

impl<T> WaiverQueue<T> {
    /// Creates an empty queue.
    ///
    /// # Panics
    /// Panics if `places` is not a power of two.
    pub fn new(places: usize) -> WaiverQueue<T> {
        assert!(places.is_power_of_two(), "the places of a Waiver Queue must be a power of two");
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

    /// Returns whether the queue is empty. Any kernel thread may call this.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the queue has an item, by one load from the producer's memory. Only for the
    /// consumer.
    ///
    /// # Safety
    /// The caller is the only consumer.
    #[inline]
    pub unsafe fn has_some(&self) -> bool {
        self.tail.shown.load(Ordering::Relaxed) != self.head.own.get()
    }

    /// Returns the number of items: a bound for producer and consumer, a hint for other threads.
    #[inline]
    pub fn len(&self) -> usize {
        let head = self.head.shown.load(Ordering::Relaxed);
        self.tail.shown.load(Ordering::Relaxed).wrapping_sub(head).min(self.places.len())
    }

    /// Returns the number of places.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Starts a batch. Its items become visible together when the `BatchWriter` is dropped.
    ///
    /// # Safety
    /// The caller is the only producer during the life of the `BatchWriter`.
    #[inline]
    pub unsafe fn fill(&self) -> BatchWriter<'_, T> {
        let tail = self.tail.own.get();
        // Acquire: the consumer's reads of the places that it returned happen before this batch's
        // writes.
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
    /// The caller is the only consumer until this function returns. `out` must not access this
    /// queue.
    #[inline]
    pub unsafe fn take(&self, most: usize, mut out: impl FnMut(NonNull<T>)) -> usize {
        let head = self.head.own.get();
        // Acquire pairs with the Release in `BatchWriter::drop`: the places and the producer's
        // changes to the items are visible.
        let tail = self.tail.shown.load(Ordering::Acquire);
        let n = tail.wrapping_sub(head).min(most);
        for i in 0..n {
            if let Some(item) = NonNull::new(self.place(head.wrapping_add(i)).get()) {
                out(item);
            }
        }
        if n > 0 {
            self.head.own.set(head.wrapping_add(n));
            // Release: the reads of the places happen before the producer's next writes to them.
            self.head.shown.store(head.wrapping_add(n), Ordering::Release);
        }
        n
    }
}

/// A batch that the producer writes to a Waiver Queue.
pub struct BatchWriter<'a, T> {
    waiver: &'a WaiverQueue<T>,
    start: usize,
    tail: usize,
    free: usize,
}

impl<T> BatchWriter<'_, T> {
    /// Returns how many further items fit.
    #[inline]
    pub fn free(&self) -> usize {
        self.free
    }

    /// Returns whether the queue was empty when the batch began. Places that the consumer returned
    /// since then are not available to this batch.
    #[inline]
    pub fn began_empty(&self) -> bool {
        self.free + self.tail.wrapping_sub(self.start) == self.waiver.places.len()
    }

    /// Appends an item.
    ///
    /// # Errors
    /// Returns the item if the batch is full.
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
            // Release: places and items are written before they become visible.
            self.waiver.tail.shown.store(self.tail, Ordering::Release);
        }
    }
}
