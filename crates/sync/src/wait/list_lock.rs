//! The spin lock under which a wait list is changed: held for some tens of nanoseconds, never
//! across a switch, a park or code of the user.

use crate::loom::{AtomicBool, NoEvents, spin_loop, yield_now};
use crate::wait::lockrank::{self, Rank};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(crate) struct ListLock<T> {
    locked: AtomicBool,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: `locked` gives one holder at a time access to `value`; its acquire and release order the
// accesses.
unsafe impl<T: Send> Sync for ListLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for ListLock<T> {}

// No panic leaves it locked or its value half changed: no code of the user runs under it.
impl<T> UnwindSafe for ListLock<T> {}
impl<T> RefUnwindSafe for ListLock<T> {}

impl<T> ListLock<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> ListLock<T> {
        ListLock { locked: AtomicBool::new(false), rank, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> ListLockGuard<'_, T> {
        // Others spin for it: its holder must not lose its virtual processor.
        let quiet = NoEvents::new();
        lockrank::acquire(self.rank);
        if self.locked.swap(true, Acquire) {
            self.lock_slow();
        }
        ListLockGuard { lock: self, _quiet: quiet }
    }

    #[cold]
    fn lock_slow(&self) {
        let mut turns = 0u32;
        loop {
            while self.locked.load(Relaxed) {
                turns += 1;
                // The holder's kernel thread may have been preempted: then only giving up the core
                // helps.
                if turns.is_multiple_of(128) { yield_now() } else { spin_loop() }
            }
            if !self.locked.swap(true, Acquire) {
                return;
            }
        }
    }
}

pub(crate) struct ListLockGuard<'a, T> {
    lock: &'a ListLock<T>,
    _quiet: NoEvents,
}

impl<T> Deref for ListLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for ListLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock, and `self` is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for ListLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.locked.store(false, Release);
        lockrank::release(self.lock.rank);
    }
}
