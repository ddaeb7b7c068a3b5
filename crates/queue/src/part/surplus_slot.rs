//! The surplus slot: one surplus item that anybody may take, and the owner may take back.
//!
//! It closes a gap of the paper's ring. What is in a Waiver Queue can be taken by the next VP only,
//! not even by its owner. So a VP with two runnable items must keep the second one, or it would
//! have to wait for its neighbour when the first one blocks; and then a child that was just spawned
//! by a parent that computes for seconds is out of everybody's reach although a VP idles. The
//! surplus slot holds such an item while some VP is idle. It costs a read-modify-write to take, so
//! it is no part of the fast path: nothing is put there while all VPs have work.

use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicPtr, Ordering};

/// One-element exchange slot.
pub struct SurplusSlot<T> {
    item: AtomicPtr<T>,
}

impl<T> SurplusSlot<T> {
    /// An empty one.
    pub fn new() -> SurplusSlot<T> {
        SurplusSlot { item: AtomicPtr::new(null_mut()) }
    }

    /// Whether nothing is on offer. To its owner `true` is final: nobody else puts an item there.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.item.load(Ordering::Relaxed).is_null()
    }

    /// Offers an item.
    ///
    /// # Safety
    /// The caller owns the surplus slot and it is empty.
    #[inline]
    pub unsafe fn put(&self, item: NonNull<T>) {
        debug_assert!(self.is_empty());
        // A plain store does: takers only ever turn an item into null, so an empty slot changes
        // under nobody's hands but the owner's. Release: what the owner did to the item comes
        // first.
        self.item.store(item.as_ptr(), Ordering::Release);
    }

    /// Takes what is on offer; any kernel thread, the owner included.
    #[inline]
    pub fn take(&self) -> Option<NonNull<T>> {
        let item = NonNull::new(self.item.load(Ordering::Relaxed))?;
        // Compare and exchange, not swap: takers then only ever turn an item into null, which `put`
        // relies on, and idle VPs do not take the line for writing in vain. The same item offered
        // anew meanwhile is as good. Acquire: pairs with the release in `put`. Of several takers
        // one gets the item.
        let took = self.item.compare_exchange(
            item.as_ptr(),
            null_mut(),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        took.is_ok().then_some(item)
    }
}

impl<T> Default for SurplusSlot<T> {
    fn default() -> SurplusSlot<T> {
        SurplusSlot::new()
    }
}
