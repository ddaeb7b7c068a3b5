//! Readers-writer lock: data that several readers or one writer may access.

use crate::lock::guarded::{Exclusive, Guarded, RawExclusive};
use crate::lock::poison::{LockResult, TryLockError, TryLockResult};
use crate::lock::rawrwlock::RawRwLock;
use crate::loom::const_fn;
use crate::wait::deadline;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Readers-writer lock for microprocesses and kernel threads, in any mixture. The API is that of
/// [`std::sync::RwLock`], with `read_timeout`, `read_until`, `write_timeout` and `write_until`
/// added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is not a microprocess. *Not* a
/// cancellation point.
///
/// Waiters are served by priority, then in order of arrival; consecutive readers at the head of the
/// queue get the lock together. New readers queue behind a waiting writer, so a thread that locks
/// for reading twice deadlocks if a writer queues in between. A running locker may overtake waiters
/// that were just woken, for a millisecond at most. There is no priority inheritance.
///
/// A panic or a cancellation that unwinds through a write guard poisons the lock, as in std.
///
/// Memory ordering: dropping a write guard *happens before* every later locking; dropping a read
/// guard *happens before* the next locking for writing.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::RwLock;
///
/// let lock = RwLock::new(5);
/// {
///     let (a, b) = (lock.read().unwrap(), lock.read().unwrap());
///     assert_eq!(*a + *b, 10);
/// }
/// *lock.write().unwrap() += 1;
/// assert_eq!(*lock.read().unwrap(), 6);
/// ```
pub struct RwLock<T: ?Sized>(Guarded<RawRwLock, T>);

// SAFETY: owning the lock is owning the data.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: readers share `&T`, hence `T: Sync`; a writer can take the data out, hence `T: Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// Guard of an [`RwLock`] that is locked for reading; unlocks on drop.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::RwLock;
///
/// let limits = RwLock::new((10, 20));
/// let (one, other) = (limits.read().unwrap(), limits.read().unwrap());
/// assert_eq!(one.0 + other.1, 30);
/// assert!(limits.try_write().is_err());
/// ```
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    // Not `&T`: the compiler assumes that a reference argument stays valid until the function
    // returns, but a function may drop the guard earlier.
    data: NonNull<T>,
    raw: &'a RawRwLock,
    // The pointer makes the guard `!Send`. Covariant in `T`, as in std.
    lives: PhantomData<&'a T>,
}

/// Guard of an [`RwLock`] that is locked for writing; unlocks on drop.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::RwLock;
///
/// let names = RwLock::new(Vec::new());
/// let mut guard = names.write().unwrap();
/// guard.push("ann");
/// assert!(names.try_read().is_err());
/// drop(guard);
/// assert_eq!(*names.read().unwrap(), ["ann"]);
/// ```
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a>(Exclusive<'a, RawRwLock, T>);

impl RawExclusive for RawRwLock {
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller keeps the contract of `unlock_write`.
        unsafe { self.unlock_write() };
    }
}

// SAFETY: a shared guard gives out `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
impl<T: ?Sized> UnwindSafe for RwLockReadGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for RwLockReadGuard<'_, T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// Creates an unlocked lock with `value`.
        #[inline]
        pub fn new(value: T) -> RwLock<T> {
            RwLock(Guarded::new(RawRwLock::new(), value))
        }
    }

    /// Consumes the lock and returns the data. Never blocks.
    ///
    /// # Errors
    /// Returns the data inside a [`PoisonError`](crate::PoisonError) if the lock is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading. Blocks the microprocess while a writer holds the lock or waits for it.
    ///
    /// # Errors
    /// Returns the guard inside a [`PoisonError`](crate::PoisonError) if the lock is poisoned. The
    /// lock is held in this case too.
    ///
    /// # Panics
    /// If the caller holds the lock for writing, or there are 2^30 - 1 readers.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.0.raw.read(None);
        self.reading()
    }

    /// Locks for reading if no writer holds the lock or waits for it. Never blocks.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if the lock was not acquired; the guard inside
    /// [`TryLockError::Poisoned`] if the lock is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        if self.0.raw.try_read() { Ok(self.reading()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Locks like [`read`](RwLock::read), but gives up after `timeout`. Blocks the microprocess, at
    /// most until then.
    ///
    /// # Errors
    /// As [`try_read`](RwLock::try_read).
    ///
    /// # Panics
    /// As [`read`](RwLock::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::{RwLock, TryLockError};
    /// use kumihimo::thread;
    /// use std::time::Duration;
    ///
    /// let table = RwLock::new([0; 4]);
    /// let writer = table.write().unwrap();
    /// thread::scope(|s| {
    ///     s.spawn(|| {
    ///         let outcome = table.read_timeout(Duration::from_millis(5));
    ///         assert!(matches!(outcome, Err(TryLockError::WouldBlock)));
    ///     });
    /// });
    /// # drop(writer);
    /// ```
    pub fn read_timeout(&self, timeout: Duration) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_limited(deadline::after(timeout))
    }

    /// Locks like [`read`](RwLock::read), but gives up at `deadline`. Blocks the microprocess, at
    /// most until then.
    ///
    /// # Errors
    /// As [`try_read`](RwLock::try_read).
    ///
    /// # Panics
    /// As [`read`](RwLock::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::RwLock;
    /// use std::time::{Duration, Instant};
    ///
    /// let table = RwLock::new([1, 2, 3]);
    /// let reader = table.read_until(Instant::now() + Duration::from_millis(5)).unwrap();
    /// assert_eq!(reader.iter().sum::<i32>(), 6);
    /// ```
    pub fn read_until(&self, deadline: Instant) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_limited(Some(deadline))
    }

    /// Locks for writing. Blocks the microprocess until no other thread holds the lock.
    ///
    /// # Errors
    /// Returns the guard inside a [`PoisonError`](crate::PoisonError) if the lock is poisoned. The
    /// lock is held in this case too.
    ///
    /// # Panics
    /// If the caller holds the lock for writing already.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.0.raw.write(None);
        self.writing()
    }

    /// Locks for writing if the lock is free. Never blocks.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if the lock was not acquired; the guard inside
    /// [`TryLockError::Poisoned`] if the lock is poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        if self.0.raw.try_write() { Ok(self.writing()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Locks like [`write`](RwLock::write), but gives up after `timeout`. Blocks the microprocess,
    /// at most until then.
    ///
    /// # Errors
    /// As [`try_write`](RwLock::try_write).
    ///
    /// # Panics
    /// As [`write`](RwLock::write).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::{RwLock, TryLockError};
    /// use std::time::Duration;
    ///
    /// let table = RwLock::new([0; 4]);
    /// let reader = table.read().unwrap();
    /// let outcome = table.write_timeout(Duration::from_millis(5));
    /// assert!(matches!(outcome, Err(TryLockError::WouldBlock)));
    /// # drop(reader);
    /// ```
    pub fn write_timeout(&self, timeout: Duration) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_limited(deadline::after(timeout))
    }

    /// Locks like [`write`](RwLock::write), but gives up at `deadline`. Blocks the microprocess, at
    /// most until then.
    ///
    /// # Errors
    /// As [`try_write`](RwLock::try_write).
    ///
    /// # Panics
    /// As [`write`](RwLock::write).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::RwLock;
    /// use std::time::{Duration, Instant};
    ///
    /// let table = RwLock::new([0; 4]);
    /// table.write_until(Instant::now() + Duration::from_millis(5)).unwrap()[2] = 7;
    /// assert_eq!(*table.read().unwrap(), [0, 0, 7, 0]);
    /// ```
    pub fn write_until(&self, deadline: Instant) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_limited(Some(deadline))
    }

    /// Returns whether the lock is poisoned. Other threads may change this at any time, unless the
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
    /// Returns the reference inside a [`PoisonError`](crate::PoisonError) if the lock is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    fn read_limited(&self, deadline: Option<Instant>) -> TryLockResult<RwLockReadGuard<'_, T>> {
        if self.0.raw.read(deadline) { Ok(self.reading()?) } else { Err(TryLockError::WouldBlock) }
    }

    fn write_limited(&self, deadline: Option<Instant>) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        if self.0.raw.write(deadline) { Ok(self.writing()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Creates the guard after the caller has locked `raw` for reading.
    fn reading(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.0.poison.result(RwLockReadGuard::of(&self.0))
    }

    /// Creates the guard after the caller has locked `raw` for writing.
    fn writing(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        // SAFETY: the callers have just locked `raw` for writing.
        let guard = RwLockWriteGuard(unsafe { self.0.exclusive() });
        self.0.poison.result(guard)
    }
}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// Creates the guard of a lock that the caller holds for reading.
    fn of(lock: &'a Guarded<RawRwLock, T>) -> RwLockReadGuard<'a, T> {
        // SAFETY: the pointer to the data of a lock is not null.
        let data = unsafe { NonNull::new_unchecked(lock.data()) };
        RwLockReadGuard { data, raw: &lock.raw, lives: PhantomData }
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns the write lock into a read lock, without another writer in between.
    pub fn downgrade(this: RwLockWriteGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        let lock = this.0.into_lock();
        // SAFETY: `into_lock` has left the lock held for writing.
        unsafe { lock.raw.downgrade() };
        RwLockReadGuard::of(lock)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock for reading, so no thread writes.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a read guard exists only while its holder has the lock for reading.
        unsafe { self.raw.unlock_read() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("RwLock", &format_args!("<locked>"), self.try_read(), f)
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}
