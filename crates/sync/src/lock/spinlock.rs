//! A spin lock whose waiters do not spin for one that sleeps.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use kumihimo_runtime::spinning::{Holding, Pause, hold};

/// A lock for some instructions: a waiter spins, as long as the holder runs. While the holder is
/// preempted, or blocked in the kernel (a page fault, say), waiters let others run (P0, 3.2).
///
/// [`Mutex`](crate::Mutex) is the better choice for anything longer. Not fair, no poison: a panic
/// of the holder releases it. On kernel threads that are no microprocesses it spins and yields to
/// the kernel.
#[derive(Default)]
pub struct SpinLock<T: ?Sized> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `locked` gives one holder at a time access to the value; its acquire and release order
// the accesses.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// Unlocked.
    pub const fn new(value: T) -> SpinLock<T> {
        SpinLock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Waits, busily while the holder runs. Not a cancellation point. Deadlocks if the caller holds
    /// it.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        if self.locked.swap(true, Acquire) {
            self.lock_slow();
        }
        SpinLockGuard { holding: Some(hold(&raw const self.locked)), lock: self }
    }

    /// Only if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        (!self.locked.swap(true, Acquire))
            .then(|| SpinLockGuard { holding: Some(hold(&raw const self.locked)), lock: self })
    }

    #[cold]
    fn lock_slow(&self) {
        let mut pause = Pause::new();
        loop {
            while self.locked.load(Relaxed) {
                pause.turn(&raw const self.locked);
            }
            if !self.locked.swap(true, Acquire) {
                return;
            }
        }
    }

    /// Without locking: nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("SpinLock");
        match self.try_lock() {
            Some(guard) => out.field("value", &&*guard),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}

/// The lock, held; released on drop.
#[must_use = "the lock is released when this is dropped"]
pub struct SpinLockGuard<'a, T: ?Sized> {
    /// Taken before the release: after it the place is the next holder's.
    holding: Option<Holding>,
    lock: &'a SpinLock<T>,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SpinLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Deref for SpinLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock, and `self` is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.holding = None;
        self.lock.locked.store(false, Release);
    }
}
