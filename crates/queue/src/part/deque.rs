//! Deque with one producer and many consumers: the growing array of Chase and Lev (*Dynamic
//! Circular Work-Stealing Deque*, SPAA 2005). Items leave at one end only, so the order is first
//! in, first out.
//!
//! Items are numbered in the order of their arrival; number n is in cell n modulo the size. `front`
//! and `back` are numbers that only grow, so a consumer cannot mistake a new item for an old one
//! (no ABA problem). A consumer copies items and then advances `front` past them. If that succeeds,
//! no other consumer has advanced `front` meanwhile. The owner reuses a cell only after `front` has
//! passed it, so the copied cells were not overwritten either.
//!
//! **Memory.** A full array is replaced by one of twice the size. The old array is kept until the
//! queue is dropped, since consumers may be reading it; all old arrays together are as large as the
//! last one. A removal therefore needs neither epochs nor hazard pointers, nor their thread-local
//! state, of which each microprocess would have a copy.

use alloc::boxed::Box;
use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicPtr, AtomicUsize, Ordering, Padded};

/// Initial number of cells. Under loom it is small, so that the model covers growth.
const FIRST: usize = if cfg!(loom) { 2 } else { 64 };
/// Largest number of items in one steal, which takes at most half of the deque.
pub const BATCH: usize = 32;

struct Cells<T> {
    items: Box<[AtomicPtr<T>]>,
    /// The array that this one replaced, created by `Box::into_raw`; or null.
    outgrown: *mut Cells<T>,
}

impl<T> Cells<T> {
    fn new(size: usize, outgrown: *mut Cells<T>) -> *mut Cells<T> {
        let items = (0..size).map(|_| AtomicPtr::new(null_mut())).collect();
        Box::into_raw(Box::new(Cells { items, outgrown }))
    }

    /// Returns the cell of a number. The size is a power of two.
    #[inline]
    fn at(&self, number: usize) -> &AtomicPtr<T> {
        &self.items[number & (self.items.len() - 1)]
    }
}

/// Result of an attempt to steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stolen {
    /// The number of items stolen.
    Some(usize),
    /// The deque was empty.
    Nothing,
    /// Another consumer was faster.
    Missed,
}

/// Deque of pointers to items.
pub struct Deque<T> {
    /// Number of the oldest item.
    front: Padded<AtomicUsize>,
    /// Number of the next item to arrive. Written by the owner.
    back: Padded<AtomicUsize>,
    /// The current array. Written by the owner.
    cells: AtomicPtr<Cells<T>>,
}

impl<T> Deque<T> {
    /// Creates an empty deque.
    pub fn new() -> Deque<T> {
        Deque {
            front: Padded(AtomicUsize::new(0)),
            back: Padded(AtomicUsize::new(0)),
            cells: AtomicPtr::new(Cells::new(FIRST, null_mut())),
        }
    }

    /// Returns the current array. Acquire makes its contents visible.
    #[inline]
    fn cells(&self) -> &Cells<T> {
        // SAFETY: created by `Cells::new`, and kept until the deque is dropped, even if replaced.
        unsafe { &*self.cells.load(Ordering::Acquire) }
    }

    /// Returns the numbers of the oldest item and of the next one to arrive. The first may be
    /// outdated at once; the second too, except for the owner.
    #[inline]
    fn numbers(&self) -> (usize, usize) {
        // Acquire: the thread that advanced `front` to this value had read a `back` beyond it, so
        // this thread reads one too.
        let front = self.front.load(Ordering::Acquire);
        // Acquire: makes the items before `back`, their cells and earlier changes to them visible.
        (front, self.back.load(Ordering::Acquire))
    }

    /// Returns the number of items; only a hint for threads other than the owner.
    #[inline]
    pub fn len(&self) -> usize {
        let (front, back) = self.numbers();
        back.wrapping_sub(front)
    }

    /// Returns whether the deque is empty; only a hint for threads other than the owner.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends an item. Allocates when the array grows.
    ///
    /// # Safety
    /// The caller is the owner: one kernel thread at a time calls the owner's functions.
    #[inline]
    pub unsafe fn push(&self, item: NonNull<T>) {
        let back = self.back.load(Ordering::Relaxed);
        // SAFETY: the caller is the owner.
        unsafe { self.reserve(1) }.at(back).store(item.as_ptr(), Ordering::Relaxed);
        // Release: publishes the item and earlier changes to it.
        self.back.store(back.wrapping_add(1), Ordering::Release);
    }

    /// Returns the array, with room for `more` further items.
    ///
    /// # Safety
    /// Same requirements as [`push`](Deque::push).
    #[inline]
    unsafe fn reserve(&self, more: usize) -> &Cells<T> {
        let back = self.back.load(Ordering::Relaxed);
        // Acquire: the thread that advanced `front` has read the cells before it, so these may be
        // overwritten.
        let front = self.front.load(Ordering::Acquire);
        let cells = self.cells();
        let wanted = back.wrapping_sub(front) + more;
        if wanted <= cells.items.len() { cells } else { self.grow(front, back, wanted) }
    }

    #[cold]
    fn grow(&self, front: usize, back: usize, wanted: usize) -> &Cells<T> {
        let old = self.cells.load(Ordering::Relaxed);
        let new = Cells::new(wanted.next_power_of_two(), old);
        // SAFETY: both arrays were created by `Cells::new` and are kept until the deque is dropped.
        let (old, cells) = unsafe { (&*old, &*new) };
        let mut number = front;
        while number != back {
            cells.at(number).store(old.at(number).load(Ordering::Relaxed), Ordering::Relaxed);
            number = number.wrapping_add(1);
        }
        // Release: publishes the contents of the array.
        self.cells.store(new, Ordering::Release);
        cells
    }

    /// Advances `front`, and returns whether no other thread did so meanwhile.
    #[inline]
    fn advance(&self, front: usize, by: usize) -> bool {
        // Release: the reads of the cells happen before later writes to them. The necessary acquire
        // is in `numbers`.
        let moved = front.wrapping_add(by);
        self.front.compare_exchange(front, moved, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the oldest item. For any kernel thread, including the owner.
    #[inline]
    pub fn pop(&self) -> Option<NonNull<T>> {
        loop {
            let (front, back) = self.numbers();
            if front == back {
                return None;
            }
            // Loaded after `back`, so the array contains the items before it.
            let item = self.cells().at(front).load(Ordering::Relaxed);
            if self.advance(front, 1) {
                return NonNull::new(item);
            }
        }
    }

    /// Moves half of the items, at most [`BATCH`], to the back of `into`.
    ///
    /// # Safety
    /// The caller is the owner of `into`, which is another deque.
    pub unsafe fn steal(&self, into: &Deque<T>) -> Stolen {
        let (front, back) = self.numbers();
        let count = back.wrapping_sub(front).div_ceil(2).min(BATCH);
        if count == 0 {
            return Stolen::Nothing;
        }
        let (from, end) = (self.cells(), into.back.load(Ordering::Relaxed));
        // SAFETY: the caller is the owner of `into`.
        let to = unsafe { into.reserve(count) };
        for n in 0..count {
            let item = from.at(front.wrapping_add(n)).load(Ordering::Relaxed);
            to.at(end.wrapping_add(n)).store(item, Ordering::Relaxed);
        }
        if !self.advance(front, count) {
            return Stolen::Missed;
        }
        // Release: publishes the items and earlier changes to them.
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
            // SAFETY: created by `Box::into_raw`, and no other thread can read the arrays any more.
            cells = unsafe { Box::from_raw(cells) }.outgrown;
        }
    }
}
