//! A queue with one producer and many consumers, first in, first out: the growing array of Chase
//! and Lev (*Dynamic Circular Work-Stealing Deque*, SPAA 2005), taken from at one end only.
//!
//! Items are numbered in the order of their arrival; number n lies in cell n modulo the size.
//! `front` and `back` are numbers that only grow, so nothing is ever mistaken for what lay there
//! before (no ABA). A taker copies what it wants to have and then moves `front` past it: if that
//! succeeds nobody moved it meanwhile, and so nobody has overwritten what was copied, since the
//! owner uses a cell again only when `front` has passed it.
//!
//! **Memory.** A full array is replaced by one of twice the size and kept until the queue goes,
//! since takers may be reading it: all of them together are as large as the last. So a take needs
//! neither an epoch nor a hazard pointer, and with them no thread-local state, which each
//! microprocess would have a copy of.

use alloc::boxed::Box;
use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicPtr, AtomicUsize, Ordering, Padded};

/// Cells at first. Loom looks at what happens when they do not suffice.
const FIRST: usize = if cfg!(loom) { 2 } else { 64 };
/// Most items that one thief takes at once, of half of those there are.
pub const BATCH: usize = 32;

struct Cells<T> {
    items: Box<[AtomicPtr<T>]>,
    /// What was replaced by this, made by `Box::into_raw`; or null.
    outgrown: *mut Cells<T>,
}

impl<T> Cells<T> {
    fn new(size: usize, outgrown: *mut Cells<T>) -> *mut Cells<T> {
        let items = (0..size).map(|_| AtomicPtr::new(null_mut())).collect();
        Box::into_raw(Box::new(Cells { items, outgrown }))
    }

    /// The cell of a number. The size is a power of two.
    #[inline]
    fn at(&self, number: usize) -> &AtomicPtr<T> {
        &self.items[number & (self.items.len() - 1)]
    }
}

/// What came of an attempt to steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stolen {
    /// So many items.
    Some(usize),
    /// There was nothing.
    Nothing,
    /// Somebody else was faster.
    Missed,
}

/// Queue of pointers to items.
pub struct Deque<T> {
    /// Number of the oldest item.
    front: Padded<AtomicUsize>,
    /// Number of the next item that comes. Written by the owner.
    back: Padded<AtomicUsize>,
    /// Written by the owner.
    cells: AtomicPtr<Cells<T>>,
}

impl<T> Deque<T> {
    /// An empty one.
    pub fn new() -> Deque<T> {
        Deque {
            front: Padded(AtomicUsize::new(0)),
            back: Padded(AtomicUsize::new(0)),
            cells: AtomicPtr::new(Cells::new(FIRST, null_mut())),
        }
    }

    /// Acquire: as they were filled.
    #[inline]
    fn cells(&self) -> &Cells<T> {
        // SAFETY: made by `Cells::new`, and kept until the queue is dropped, outgrown or not.
        unsafe { &*self.cells.load(Ordering::Acquire) }
    }

    /// The numbers of what is in it. The first may be too small at once, the second to all but the
    /// owner.
    #[inline]
    fn numbers(&self) -> (usize, usize) {
        // Acquire: the thread that moved `front` to there had seen a `back` beyond it, so this one
        // is, too.
        let front = self.front.load(Ordering::Acquire);
        // Acquire: the items before it, where they lie, and what was done to them.
        (front, self.back.load(Ordering::Acquire))
    }

    /// Items in it; to all but the owner a hint.
    #[inline]
    pub fn len(&self) -> usize {
        let (front, back) = self.numbers();
        back.wrapping_sub(front)
    }

    /// Whether there are none; to all but the owner a hint.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an item behind the others. Allocates when it grows.
    ///
    /// # Safety
    /// The caller is the owner: one kernel thread at a time calls what only the owner may.
    #[inline]
    pub unsafe fn push(&self, item: NonNull<T>) {
        let back = self.back.load(Ordering::Relaxed);
        // SAFETY: the owner's call.
        unsafe { self.reserve(1) }.at(back).store(item.as_ptr(), Ordering::Relaxed);
        // Release: the item, and what was done to it.
        self.back.store(back.wrapping_add(1), Ordering::Release);
    }

    /// Cells with room for so many more items.
    ///
    /// # Safety
    /// As [`push`](Deque::push).
    #[inline]
    unsafe fn reserve(&self, more: usize) -> &Cells<T> {
        let back = self.back.load(Ordering::Relaxed);
        // Acquire: the thread that moved it has read the cells before it, which may be written
        // again.
        let front = self.front.load(Ordering::Acquire);
        let cells = self.cells();
        let wanted = back.wrapping_sub(front) + more;
        if wanted <= cells.items.len() { cells } else { self.grow(front, back, wanted) }
    }

    #[cold]
    fn grow(&self, front: usize, back: usize, wanted: usize) -> &Cells<T> {
        let old = self.cells.load(Ordering::Relaxed);
        let new = Cells::new(wanted.next_power_of_two(), old);
        // SAFETY: both are made by `Cells::new` and kept until the queue is dropped.
        let (old, cells) = unsafe { (&*old, &*new) };
        let mut number = front;
        while number != back {
            cells.at(number).store(old.at(number).load(Ordering::Relaxed), Ordering::Relaxed);
            number = number.wrapping_add(1);
        }
        // Release: what is in them.
        self.cells.store(new, Ordering::Release);
        cells
    }

    /// Moves `front`, and says whether nobody else did.
    #[inline]
    fn advance(&self, front: usize, by: usize) -> bool {
        // Release: what was read of the cells was read before, and so is what is written there
        // next. What is acquired was with `numbers`.
        let moved = front.wrapping_add(by);
        self.front.compare_exchange(front, moved, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the oldest item; any kernel thread, the owner included.
    #[inline]
    pub fn pop(&self) -> Option<NonNull<T>> {
        loop {
            let (front, back) = self.numbers();
            if front == back {
                return None;
            }
            // After `back`: cells that have what lies before it.
            let item = self.cells().at(front).load(Ordering::Relaxed);
            if self.advance(front, 1) {
                return NonNull::new(item);
            }
        }
    }

    /// Takes half of what is in it, up to [`BATCH`], for `into`, behind what is there.
    ///
    /// # Safety
    /// The caller is the owner of `into`, which is another queue.
    pub unsafe fn steal(&self, into: &Deque<T>) -> Stolen {
        let (front, back) = self.numbers();
        let count = back.wrapping_sub(front).div_ceil(2).min(BATCH);
        if count == 0 {
            return Stolen::Nothing;
        }
        let (from, end) = (self.cells(), into.back.load(Ordering::Relaxed));
        // SAFETY: the owner's call.
        let to = unsafe { into.reserve(count) };
        for n in 0..count {
            let item = from.at(front.wrapping_add(n)).load(Ordering::Relaxed);
            to.at(end.wrapping_add(n)).store(item, Ordering::Relaxed);
        }
        if !self.advance(front, count) {
            return Stolen::Missed;
        }
        // Release: the items, and what was done to them.
        into.back.store(end.wrapping_add(count), Ordering::Release);
        Stolen::Some(count)
    }
}

impl<T> Default for Deque<T> {
    fn default() -> Deque<T> {
        Deque::new()
    }
}

impl<T> Drop for Deque<T> {
    fn drop(&mut self) {
        let mut cells = self.cells.load(Ordering::Relaxed);
        while !cells.is_null() {
            // SAFETY: made by `Box::into_raw`, and no thread is left that could read them.
            cells = unsafe { Box::from_raw(cells) }.outgrown;
        }
    }
}
