//! Injector: queue by which other kernel threads pass a runnable item to a VP.
//!
//! Any number of producers, and one consumer that takes all items at once. The queue is intrusive,
//! so a wake-up never allocates and never fails.

use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicPtr, Ordering};
use crate::node::{Node, links};

/// Multi-producer queue of one VP; first in, first out.
pub struct Injector<T> {
    /// The last item pushed; `inject_next` links it to the previous one.
    last: AtomicPtr<T>,
}

impl<T: Node> Injector<T> {
    /// Creates an empty injector.
    pub fn new() -> Injector<T> {
        Injector { last: AtomicPtr::new(null_mut()) }
    }

    /// Returns whether the injector is empty, by one relaxed load.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.last.load(Ordering::Relaxed).is_null()
    }

    /// Pushes an item, and returns whether the injector was empty. The caller must then notify the
    /// VP. For any kernel thread; lock-free, does not allocate.
    ///
    /// # Safety
    /// `item` stays live until the VP has taken it, and it is in no injector. It may be in a
    /// Protect Queue, because the injector uses a link of its own; the caller then decides what the
    /// VP does with the duplicate.
    #[inline]
    pub unsafe fn push(&self, item: NonNull<T>) -> bool {
        // SAFETY: the caller guarantees that the item is live.
        let l = unsafe { links(item) };
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            l.inject_next.store(last, Ordering::Relaxed);
            // Release: publishes the item, its link, and everything that the caller did before.
            //
            // ABA is harmless, because the consumer takes all items. `last` is either still the
            // head that this item links to, or the same pointer pushed anew, and linking to that is
            // equally correct.
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

    /// Takes all items. Meant for one kernel thread at a time; concurrent calls return disjoint
    /// parts.
    #[inline]
    pub fn take(&self) -> Chain<T> {
        if self.is_empty() {
            return Chain { next: null_mut() };
        }
        // Acquire pairs with the Release of every push: pushes are read-modify-writes of `last`, so
        // each heads a release sequence that continues to this swap.
        let mut at = self.last.swap(null_mut(), Ordering::Acquire);
        let mut first = null_mut();
        while let Some(item) = NonNull::new(at) {
            // SAFETY: the item is live until it is taken; since the swap, only this thread accesses
            // its link.
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

/// The items taken from an injector, in order of arrival. Dropping the chain before its end loses
/// the remaining items.
#[must_use]
pub struct Chain<T: Node> {
    next: *mut T,
}

impl<T: Node> Iterator for Chain<T> {
    type Item = NonNull<T>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<T>> {
        let item = NonNull::new(self.next)?;
        // Read the link before returning the item, which may be injected again at once.
        // SAFETY: the item comes from the injector and is not returned yet, so it is live and held
        // by this thread.
        self.next = unsafe { links(item) }.inject_next.load(Ordering::Relaxed);
        Some(item)
    }
}
