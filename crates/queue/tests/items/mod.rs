//! Items for the tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ptr::NonNull;

use kumihimo_queue::{Links, Node};

/// The item that the tests queue.
pub struct Item {
    links: Links<Item>,
    /// The item's number.
    pub id: usize,
    /// Written by the holder without atomics, so that sanitizers report two holders or an unordered
    /// transfer.
    held: std::cell::UnsafeCell<usize>,
}

// SAFETY: `links` returns the one field, and `Items` keeps the items in place until the test ends.
unsafe impl Node for Item {
    fn links(&self) -> &Links<Item> {
        &self.links
    }
}

/// Items that live as long as this value.
pub struct Items(Vec<NonNull<Item>>);

// SAFETY: pointers to items whose fields only their holder accesses.
unsafe impl Send for Items {}
// SAFETY: as above.
unsafe impl Sync for Items {}

impl Items {
    /// Creates `n` items, numbered from 0.
    pub fn new(n: usize) -> Items {
        let make = |id| Item { links: Links::new(), id, held: std::cell::UnsafeCell::new(0) };
        Items((0..n).map(|id| NonNull::from(Box::leak(Box::new(make(id))))).collect())
    }

    /// Returns the item with index `i`.
    pub fn get(&self, i: usize) -> NonNull<Item> {
        self.0[i]
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns how often the item was held.
    pub fn held(&self, i: usize) -> usize {
        // SAFETY: items live as long as `self`, and callers read this after the last holder is
        // done.
        unsafe { *self.0[i].as_ref().held.get() }
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        for item in &self.0 {
            // SAFETY: `new` leaked the item, and the queues are no longer used.
            drop(unsafe { Box::from_raw(item.as_ptr()) });
        }
    }
}

/// Records an access by the holder, which is the caller, and returns the item's number.
pub fn hold(item: NonNull<Item>) -> usize {
    // SAFETY: items outlive their queues, and the caller is the only holder.
    unsafe {
        let item = item.as_ref();
        *item.held.get() += 1;
        item.id
    }
}

/// A small seeded generator, sufficient for choosing operations.
pub struct Random(u64);

impl Random {
    /// Creates a generator from any seed, including 0.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number in 0..n.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
}
