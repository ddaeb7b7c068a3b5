//! Items for the tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ptr::NonNull;

use kumihimo_queue::{Links, Node};

/// What the tests queue.
pub struct Item {
    links: Links<Item>,
    /// Its number.
    pub id: usize,
    /// Written by the holder, without any atomic: a sanitizer sees two holders, or a transfer that
    /// orders nothing.
    held: std::cell::UnsafeCell<usize>,
}

// SAFETY: `links` returns the one field; `Items` keeps them in place until the test is over.
unsafe impl Node for Item {
    fn links(&self) -> &Links<Item> {
        &self.links
    }
}

/// Items that live until it goes.
pub struct Items(Vec<NonNull<Item>>);

// SAFETY: pointers to items whose parts are for their holder only.
unsafe impl Send for Items {}
// SAFETY: as above.
unsafe impl Sync for Items {}

impl Items {
    /// `n` items, numbered from 0.
    pub fn new(n: usize) -> Items {
        let make = |id| Item { links: Links::new(), id, held: std::cell::UnsafeCell::new(0) };
        Items((0..n).map(|id| NonNull::from(Box::leak(Box::new(make(id))))).collect())
    }

    /// One of them.
    pub fn get(&self, i: usize) -> NonNull<Item> {
        self.0[i]
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How often it was held.
    pub fn held(&self, i: usize) -> usize {
        // SAFETY: items live as long as `self`; asked when nobody holds them any more.
        unsafe { *self.0[i].as_ref().held.get() }
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        for item in &self.0 {
            // SAFETY: leaked in `new`; the queues are no longer used.
            drop(unsafe { Box::from_raw(item.as_ptr()) });
        }
    }
}

/// Its number. The caller holds it.
pub fn hold(item: NonNull<Item>) -> usize {
    // SAFETY: items outlive their queues, and the caller is the only holder.
    unsafe {
        let item = item.as_ref();
        *item.held.get() += 1;
        item.id
    }
}

/// Small and seeded; good enough to choose what happens next.
pub struct Random(u64);

impl Random {
    /// From a seed, 0 included.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 0..n
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
}
