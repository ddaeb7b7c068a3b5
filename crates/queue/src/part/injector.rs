//! The injector: how other kernel threads hand a runnable item to a VP.
//!
//! Any number of producers, one consumer that takes all at once. Intrusive, so that waking never
//! allocates and never fails.

use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicPtr, Ordering};
use crate::node::{Node, links};

/// Multi-producer queue of one VP; first in, first out.
pub struct Injector<T> {
    /// Last in; linked through `inject_next` to the one before it.
    last: AtomicPtr<T>,
}

impl<T: Node> Injector<T> {
    /// An empty one.
    pub fn new() -> Injector<T> {
        Injector { last: AtomicPtr::new(null_mut()) }
    }

    /// Whether nothing is in it: one relaxed load.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.last.load(Ordering::Relaxed).is_null()
    }

    /// Hands an item over and says whether the injector was empty: the thread that finds it so has
    /// to see to it that the VP looks. Any kernel thread; lock-free, no allocation.
    ///
    /// # Safety
    /// `item` is live and stays so until the VP has taken it, and it is in no injector. (It may be
    /// in a Protect Queue: its own link is used. What the VP does with such a second hand is the
    /// caller's affair.)
    #[inline]
    pub unsafe fn push(&self, item: NonNull<T>) -> bool {
        // SAFETY: live by the caller's promise.
        let l = unsafe { links(item) };
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            l.inject_next.store(last, Ordering::Relaxed);
            // Release: the item, its link, and all that the caller did before. ABA is harmless: the
            // consumer takes everything, so `last` is either still the head it was linked to or the
            // same pointer newly pushed, and then linking to it is as right.
            match self.last.compare_exchange_weak(
                last,
                item.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return last.is_null(),
                Err(now) => last = now,
            }
        }
    }

    /// Takes all. One kernel thread at a time should (more than one gets disjoint parts).
    #[inline]
    pub fn take(&self) -> Chain<T> {
        if self.is_empty() {
            return Chain { next: null_mut() };
        }
        // Acquire: pairs with every push's release (pushes read-modify-write `last`, so each heads
        // a release sequence up to this one).
        let mut at = self.last.swap(null_mut(), Ordering::Acquire);
        let mut first = null_mut();
        while let Some(item) = NonNull::new(at) {
            // SAFETY: pushed and not yet taken, so live; its link is ours since the swap.
            let l = unsafe { links(item) };
            let before = l.inject_next.load(Ordering::Relaxed);
            l.inject_next.store(first, Ordering::Relaxed);
            first = at;
            at = before;
        }
        Chain { next: first }
    }
}

impl<T: Node> Default for Injector<T> {
    fn default() -> Injector<T> {
        Injector::new()
    }
}

/// What was taken from an injector, in the order in which it came. Drop it half read and the rest
/// is lost: read it to its end.
#[must_use]
pub struct Chain<T: Node> {
    next: *mut T,
}

impl<T: Node> Iterator for Chain<T> {
    type Item = NonNull<T>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<T>> {
        let item = NonNull::new(self.next)?;
        // Read before the item is handed out: it may be injected again at once.
        // SAFETY: taken from the injector and not yet handed out, so live and ours.
        self.next = unsafe { links(item) }.inject_next.load(Ordering::Relaxed);
        Some(item)
    }
}
