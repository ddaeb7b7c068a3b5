//! Spin lock whose waiters stop spinning while the holder does not run.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use kumihimo_runtime::spinning::{Holding, Pause, hold};

/// Lock for critical sections of a few instructions. A waiter spins while the holder runs. While
/// the holder is preempted or blocked in the kernel, for example in a page fault, waiters yield
/// their VP to other microprocesses (P0, 3.2).
///
/// For longer sections use [`Mutex`](crate::Mutex). The lock is not fair and has no poisoning: a
/// panic of the holder releases it. On kernel threads that are not microprocesses, `lock` spins and
/// yields to the kernel.
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
    /// Creates an unlocked spin lock.
    pub const fn new(value: T) -> SpinLock<T> {
        SpinLock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns its value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Acquires the lock, spinning while the holder runs. Not a cancellation point. Deadlocks if
    /// the caller holds the lock.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        if self.locked.swap(true, Acquire) {
            self.lock_slow();
        }
        SpinLockGuard { holding: Some(hold(&raw const self.locked)), lock: self }
    }

    /// Acquires the lock if it is free. Never waits.
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

    /// Returns the value without locking: the exclusive borrow rules out other holders.
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

/// Guard of a held [`SpinLock`]; releases the lock on drop.
#[must_use = "the lock is released when this is dropped"]
pub struct SpinLockGuard<'a, T: ?Sized> {
    /// Cleared before the lock is released: after the release the registration belongs to the next
    /// holder.
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
