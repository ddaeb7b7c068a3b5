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
///
/// # Examples
///
/// ```
/// use kumihimo::sync::SpinLock;
///
/// static LAST: SpinLock<u64> = SpinLock::new(0);
///
/// fn ticket() -> u64 {
///     let mut last = LAST.lock();
///     *last += 1;
///     *last
/// }
///
/// assert_eq!((ticket(), ticket()), (1, 2));
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::SpinLock;
    ///
    /// static FREE: SpinLock<[bool; 4]> = SpinLock::new([true; 4]);
    /// assert!(FREE.lock().iter().all(|free| *free));
    /// ```
    pub const fn new(value: T) -> SpinLock<T> {
        SpinLock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns its value.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::SpinLock;
    ///
    /// let hits = SpinLock::new(0);
    /// *hits.lock() += 1;
    /// assert_eq!(hits.into_inner(), 1);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Acquires the lock. Spins on the kernel thread while the holder runs, and blocks the
    /// microprocess while the holder does not run. Not a cancellation point. Deadlocks if the
    /// caller holds the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::SpinLock;
    /// use kumihimo::thread;
    ///
    /// let sum = SpinLock::new(0);
    /// thread::scope(|s| {
    ///     for n in 1..=10 {
    ///         let sum = &sum;
    ///         s.spawn(move || *sum.lock() += n);
    ///     }
    /// });
    /// assert_eq!(*sum.lock(), 55);
    /// ```
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        if self.locked.swap(true, Acquire) {
            self.lock_slow();
        }
        SpinLockGuard { holding: Some(hold(&raw const self.locked)), lock: self }
    }

    /// Acquires the lock if it is free. Never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::SpinLock;
    ///
    /// let queue = SpinLock::new(vec![1]);
    /// let guard = queue.lock();
    /// assert!(queue.try_lock().is_none());
    /// drop(guard);
    /// assert!(queue.try_lock().is_some());
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::SpinLock;
    ///
    /// let mut counter = SpinLock::new(1);
    /// *counter.get_mut() += 1;
    /// assert_eq!(*counter.lock(), 2);
    /// ```
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
///
/// # Examples
///
/// ```
/// use kumihimo::sync::SpinLock;
///
/// let pair = SpinLock::new((1, 2));
/// {
///     let mut guard = pair.lock();
///     guard.0 += guard.1;
/// } // released here
/// assert_eq!(*pair.lock(), (3, 2));
/// ```
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
