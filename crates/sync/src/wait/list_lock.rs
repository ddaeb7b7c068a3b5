//! Spin lock that guards a wait list. Held for tens of nanoseconds, and never across a switch, a
//! park or user code.

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

// No panic leaves the lock held or the value half changed: no user code runs under the lock.
impl<T> UnwindSafe for ListLock<T> {}
impl<T> RefUnwindSafe for ListLock<T> {}

impl<T> ListLock<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> ListLock<T> {
        ListLock { locked: AtomicBool::new(false), rank, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> ListLockGuard<'_, T> {
        // Other threads spin for this lock, so events are off: the holder must keep its VP.
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
                // The kernel may have preempted the holder's kernel thread, which then needs this
                // core.
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
