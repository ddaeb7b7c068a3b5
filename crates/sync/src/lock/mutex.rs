//! Mutex: data that one thread at a time may access.

use crate::lock::guarded::{Exclusive, Guarded, RawExclusive};
use crate::lock::poison::{LockResult, TryLockError, TryLockResult};
use crate::lock::rawmutex::RawMutex;
use crate::loom::const_fn;
use crate::wait::deadline;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// Mutual exclusion lock for microprocesses and kernel threads, in any mixture. The API is that of
/// [`std::sync::Mutex`], with [`lock_timeout`](Mutex::lock_timeout) and
/// [`lock_until`](Mutex::lock_until) added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is not a microprocess. *Not* a
/// cancellation point, so that clean-up code can enter a critical section.
///
/// Waiters are served by priority, then in order of arrival. A running locker may overtake waiters
/// (barging), but a waiter that was passed over for a millisecond is handed the lock. A
/// microprocess that holds the lock inherits the priority of its highest waiter, also along a chain
/// of owners. Kernel threads lend their priority but do not inherit.
///
/// A panic or a cancellation that unwinds through a guard poisons the mutex, as in std.
///
/// Memory ordering: unlocking *happens before* the next locking.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::Mutex;
///
/// static HITS: Mutex<u32> = Mutex::new(0);
/// *HITS.lock().unwrap() += 1;
/// assert_eq!(*HITS.lock().unwrap(), 1);
/// ```
pub struct Mutex<T: ?Sized>(Guarded<RawMutex, T>);

// SAFETY: the mutex gives one thread at a time access to the data, as if it had been sent there.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// Guard of a locked [`Mutex`], with access to the data; unlocks on drop. The guard is not `Send`,
/// so only the thread that locked can unlock.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::Mutex;
///
/// let scores = Mutex::new(vec![7, 9, 8]);
/// let mut guard = scores.lock().unwrap();
/// guard.sort();
/// assert_eq!(*guard, [7, 8, 9]);
/// drop(guard);
/// assert!(scores.try_lock().is_ok());
/// ```
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized + 'a>(Exclusive<'a, RawMutex, T>);

impl RawExclusive for RawMutex {
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller keeps the contract of `unlock`.
        unsafe { self.unlock() };
    }
}

impl<T> Mutex<T> {
    const_fn! {
        /// Creates an unlocked mutex with `value`.
        #[inline]
        pub fn new(value: T) -> Mutex<T> {
            Mutex(Guarded::new(RawMutex::new(), value))
        }
    }

    /// Consumes the mutex and returns the data. Never blocks.
    ///
    /// # Errors
    /// Returns the data inside a [`PoisonError`](crate::PoisonError) if the mutex is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex. Blocks the microprocess until the mutex is free.
    ///
    /// # Errors
    /// Returns the guard inside a [`PoisonError`](crate::PoisonError) if the mutex is poisoned. The
    /// mutex is locked in this case too.
    ///
    /// # Panics
    /// If the caller holds this mutex already, because the wait would never end.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.0.raw.lock();
        self.guard()
    }

    /// Locks the mutex if it is free. Never blocks.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if the mutex is locked; the guard inside
    /// [`TryLockError::Poisoned`] if it is poisoned.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.0.raw.try_lock() { Ok(self.guard()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Locks like [`lock`](Mutex::lock), but gives up after `timeout`. Blocks the microprocess, at
    /// most until then.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if the timeout expires; the guard inside
    /// [`TryLockError::Poisoned`] if the mutex is poisoned.
    ///
    /// # Panics
    /// As [`lock`](Mutex::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::{Mutex, TryLockError};
    /// use kumihimo::thread;
    /// use std::time::Duration;
    ///
    /// let account = Mutex::new(100);
    /// let guard = account.lock().unwrap();
    /// thread::scope(|s| {
    ///     s.spawn(|| {
    ///         let outcome = account.lock_timeout(Duration::from_millis(5));
    ///         assert!(matches!(outcome, Err(TryLockError::WouldBlock)));
    ///     });
    /// });
    /// assert_eq!(*guard, 100);
    /// ```
    pub fn lock_timeout(&self, timeout: Duration) -> TryLockResult<MutexGuard<'_, T>> {
        match deadline::after(timeout) {
            Some(deadline) => self.lock_until(deadline),
            None => Ok(self.lock()?),
        }
    }

    /// Locks like [`lock`](Mutex::lock), but gives up at `deadline`. Blocks the microprocess, at
    /// most until then.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if the deadline passes; the guard inside
    /// [`TryLockError::Poisoned`] if the mutex is poisoned.
    ///
    /// # Panics
    /// As [`lock`](Mutex::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Mutex;
    /// use std::time::{Duration, Instant};
    ///
    /// let (from, to) = (Mutex::new(100), Mutex::new(0));
    /// // Both locks must be acquired by one deadline.
    /// let deadline = Instant::now() + Duration::from_secs(60);
    /// let (mut source, mut target) =
    ///     (from.lock_until(deadline).unwrap(), to.lock_until(deadline).unwrap());
    /// *source -= 30;
    /// *target += 30;
    /// assert_eq!((*source, *target), (70, 30));
    /// ```
    pub fn lock_until(&self, deadline: Instant) -> TryLockResult<MutexGuard<'_, T>> {
        if self.0.raw.lock_until(deadline) {
            Ok(self.guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    /// Returns whether the mutex is poisoned. Other threads may change this at any time, unless the
    /// caller holds the lock.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.0.poison.get()
    }

    /// Clears the poison flag, after the caller has restored the data.
    #[inline]
    pub fn clear_poison(&self) {
        self.0.poison.clear();
    }

    /// Returns the data without locking: the exclusive borrow rules out other holders.
    ///
    /// # Errors
    /// Returns the reference inside a [`PoisonError`](crate::PoisonError) if the mutex is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    /// Creates the guard after the caller has locked `raw`.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        // SAFETY: the callers have just locked `raw`.
        let guard = MutexGuard(unsafe { self.0.exclusive() });
        self.0.poison.result(guard)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Unlocks, runs `meanwhile`, and locks again. Returns the new guard and the result.
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
        self.0.debug("Mutex", &"<locked>", self.try_lock(), f)
    }
}
