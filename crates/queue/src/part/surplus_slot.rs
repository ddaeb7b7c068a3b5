//! Surplus slot: one surplus item that any VP may take, and the owner may take back.
//!
//! It closes a gap of the paper's ring. Only the next VP can take an item from a Waiver Queue; not
//! even its owner can. A VP with two runnable items must therefore keep the second one, because
//! otherwise it would have to wait for its neighbour when the first one blocks. A new child of a
//! parent that computes for seconds would then be unreachable for all other VPs, even idle ones.
//!
//! The surplus slot holds such an item while some VP is idle. Taking the item costs a
//! read-modify-write, so the slot is not on the fast path: it stays empty while all VPs have work.

use core::ptr::{NonNull, null_mut};

use crate::loom::{AtomicPtr, Ordering};

/// One-element exchange slot.
pub struct SurplusSlot<T> {
    item: AtomicPtr<T>,
}

impl<T> SurplusSlot<T> {
    /// Creates an empty slot.
    pub fn new() -> SurplusSlot<T> {
        SurplusSlot { item: AtomicPtr::new(null_mut()) }
    }

    /// Returns whether the slot is empty. For the owner, `true` is final, because only the owner
    /// fills the slot.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.item.load(Ordering::Relaxed).is_null()
    }

    /// Offers an item.
    ///
    /// # Safety
    /// The caller owns the slot, which is empty.
    #[inline]
    pub unsafe fn put(&self, item: NonNull<T>) {
        debug_assert!(self.is_empty());
        // A plain store is sufficient: consumers only change an item to null, so only the owner
        // changes an empty slot. Release publishes the owner's earlier changes to the item.
        self.item.store(item.as_ptr(), Ordering::Release);
    }

    /// Takes the offered item. For any kernel thread, including the owner.
    #[inline]
    pub fn take(&self) -> Option<NonNull<T>> {
        let item = NonNull::new(self.item.load(Ordering::Relaxed))?;
        // A compare-exchange, not a swap: consumers then only change an item to null, as `put`
        // requires, and idle VPs do not acquire the cache line exclusively in vain. If the same
        // item was taken and offered again meanwhile, taking it is equally correct. Of several
        // consumers, one gets the item.
        //
        // Acquire pairs with the Release in `put`.
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
