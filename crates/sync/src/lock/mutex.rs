//! Mutual exclusion.

use crate::lock::guarded::{Exclusive, Guarded, RawExclusive};
use crate::lock::poison::{LockResult, TryLockError, TryLockResult};
use crate::lock::rawmutex::RawMutex;
use crate::loom::const_fn;
use crate::wait::deadline;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// A mutual exclusion lock for microprocesses and kernel threads alike, mixed; the API is
/// [`std::sync::Mutex`]'s, with [`lock_timeout`](Mutex::lock_timeout) and
/// [`lock_until`](Mutex::lock_until) added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is one. *Not* a cancellation
/// point: a critical section can be entered during clean-up.
///
/// Order of waiters: higher priority first, then first come first served; a running locker may
/// overtake them (barging), but a waiter that was passed over for a millisecond is handed the lock.
/// While a microprocess holds the lock it inherits the priority of its highest waiter, along chains
/// of owners too; kernel threads lend but do not inherit.
///
/// Poisoning is std's: a panic, and likewise a cancellation, that unwinds through a guard poisons
/// the mutex.
///
/// Memory ordering: unlocking *happens before* the next locking.
///
/// ```
/// use kumihimo_sync::Mutex;
/// static HITS: Mutex<u32> = Mutex::new(0);
/// *HITS.lock().unwrap() += 1;
/// assert_eq!(*HITS.lock().unwrap(), 1);
/// ```
pub struct Mutex<T: ?Sized>(Guarded<RawMutex, T>);

// SAFETY: the mutex gives one thread at a time access to the data, as if it had been sent there.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// Access to the data of a locked [`Mutex`]; dropping it unlocks. It cannot go to another thread,
/// so nobody but the owner can unlock.
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized + 'a>(Exclusive<'a, RawMutex, T>);

impl RawExclusive for RawMutex {
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.unlock() };
    }
}

impl<T> Mutex<T> {
    const_fn! {
        /// A free mutex around `value`.
        #[inline]
        pub fn new(value: T) -> Mutex<T> {
            Mutex(Guarded::new(RawMutex::new(), value))
        }
    }

    /// The data, taken out. Cannot block.
    ///
    /// # Errors
    /// The data inside [`PoisonError`](crate::PoisonError) if the mutex is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks; blocks until the lock is the caller's.
    ///
    /// # Errors
    /// The guard inside [`PoisonError`](crate::PoisonError) if the mutex is poisoned; the lock is
    /// held then too.
    ///
    /// # Panics
    /// If the caller holds this mutex already: waiting would never end.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.0.raw.lock();
        self.guard()
    }

    /// Locks if that is possible at once.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if it is not; the guard inside [`TryLockError::Poisoned`] if
    /// the mutex is poisoned.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.0.raw.try_lock() { Ok(self.guard()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Locks, or gives up after `timeout`.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] when the time is over; the guard inside
    /// [`TryLockError::Poisoned`] if the mutex is poisoned.
    ///
    /// # Panics
    /// As [`lock`](Mutex::lock).
    pub fn lock_timeout(&self, timeout: Duration) -> TryLockResult<MutexGuard<'_, T>> {
        match deadline::after(timeout) {
            Some(deadline) => self.lock_until(deadline),
            None => Ok(self.lock()?),
        }
    }

    /// Locks, or gives up at `deadline`.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] when the time is over; the guard inside
    /// [`TryLockError::Poisoned`] if the mutex is poisoned.
    ///
    /// # Panics
    /// As [`lock`](Mutex::lock).
    pub fn lock_until(&self, deadline: Instant) -> TryLockResult<MutexGuard<'_, T>> {
        if self.0.raw.lock_until(deadline) {
            Ok(self.guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    /// Whether a panic has unwound through a guard. Without the lock, out of date at once.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.0.poison.get()
    }

    /// Declares the data sound again.
    #[inline]
    pub fn clear_poison(&self) {
        self.0.poison.clear();
    }

    /// The data, without locking: the exclusive borrow shows that nobody holds the lock.
    ///
    /// # Errors
    /// The reference inside [`PoisonError`](crate::PoisonError) if the mutex is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    /// Makes the guard after the caller has acquired `raw`.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        // SAFETY: the callers have just acquired the lock.
        let guard = MutexGuard(unsafe { self.0.exclusive() });
        self.0.poison.result(guard)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Unlocks while `meanwhile` runs, then locks again.
    pub(crate) fn unlocked<R>(
        self,
        meanwhile: impl FnOnce() -> R,
    ) -> (LockResult<MutexGuard<'a, T>>, R) {
        let lock = self.0.lock();
        drop(self);
        let result = meanwhile();
        lock.raw.lock();
        // SAFETY: the lock has just been acquired.
        let guard = MutexGuard(unsafe { lock.exclusive() });
        (lock.poison.result(guard), result)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("Mutex", self.try_lock(), f)
    }
}
