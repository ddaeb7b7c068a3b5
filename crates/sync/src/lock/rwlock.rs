//! Many readers or one writer.

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

/// A readers-writer lock for microprocesses and kernel threads alike, mixed; the API is
/// [`std::sync::RwLock`]'s, with `read_timeout`, `read_until`, `write_timeout` and `write_until`
/// added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is one. *Not* a cancellation
/// point.
///
/// Order of waiters: higher priority first, then first come first served; leading readers are let
/// in together. New readers queue behind a waiting writer. A running locker may overtake waiters
/// that were just woken, for a millisecond at most. There is no priority inheritance. Reading twice
/// in one microprocess can therefore wait for ever if a writer comes in between.
///
/// Poisoning is std's: by a panic, or a cancellation, that unwinds through a write guard.
///
/// Memory ordering: unlocking a write guard *happens before* every later locking, unlocking a read
/// guard before the next write.
///
/// ```
/// use kumihimo_sync::RwLock;
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

/// Shared access to the data of an [`RwLock`]; dropping it unlocks.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    // Not `&T`: as an argument that would promise the data unchanged for the whole call, even after
    // the guard is dropped in it.
    data: NonNull<T>,
    raw: &'a RawRwLock,
    // Not Send, by the pointer; covariant in T, as in std.
    lives: PhantomData<&'a T>,
}

/// Exclusive access to the data of an [`RwLock`]; dropping it unlocks.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a>(Exclusive<'a, RawRwLock, T>);

impl RawExclusive for RawRwLock {
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.unlock_write() };
    }
}

// SAFETY: a shared guard gives out `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
impl<T: ?Sized> UnwindSafe for RwLockReadGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for RwLockReadGuard<'_, T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// A free lock around `value`.
        #[inline]
        pub fn new(value: T) -> RwLock<T> {
            RwLock(Guarded::new(RawRwLock::new(), value))
        }
    }

    /// The data, taken out. Cannot block.
    ///
    /// # Errors
    /// The data inside [`PoisonError`](crate::PoisonError) if the lock is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading; blocks while a writer holds the lock or is waiting for it.
    ///
    /// # Errors
    /// The guard inside [`PoisonError`](crate::PoisonError) if the lock is poisoned.
    ///
    /// # Panics
    /// If the caller holds it for writing, or there are 2^30 - 1 readers.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.0.raw.read(None);
        self.reading()
    }

    /// Locks for reading if that is possible at once.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if it is not; the guard inside [`TryLockError::Poisoned`] if
    /// the lock is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        if self.0.raw.try_read() { Ok(self.reading()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Locks for reading, or gives up after `timeout`.
    ///
    /// # Errors
    /// As [`try_read`](RwLock::try_read).
    ///
    /// # Panics
    /// As [`read`](RwLock::read).
    pub fn read_timeout(&self, timeout: Duration) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_limited(deadline::after(timeout))
    }

    /// Locks for reading, or gives up at `deadline`.
    ///
    /// # Errors
    /// As [`try_read`](RwLock::try_read).
    ///
    /// # Panics
    /// As [`read`](RwLock::read).
    pub fn read_until(&self, deadline: Instant) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_limited(Some(deadline))
    }

    /// Locks for writing; blocks while anybody holds the lock.
    ///
    /// # Errors
    /// The guard inside [`PoisonError`](crate::PoisonError) if the lock is poisoned.
    ///
    /// # Panics
    /// If the caller holds it for writing already.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.0.raw.write(None);
        self.writing()
    }

    /// Locks for writing if that is possible at once.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if it is not; the guard inside [`TryLockError::Poisoned`] if
    /// the lock is poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        if self.0.raw.try_write() { Ok(self.writing()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Locks for writing, or gives up after `timeout`.
    ///
    /// # Errors
    /// As [`try_write`](RwLock::try_write).
    ///
    /// # Panics
    /// As [`write`](RwLock::write).
    pub fn write_timeout(&self, timeout: Duration) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_limited(deadline::after(timeout))
    }

    /// Locks for writing, or gives up at `deadline`.
    ///
    /// # Errors
    /// As [`try_write`](RwLock::try_write).
    ///
    /// # Panics
    /// As [`write`](RwLock::write).
    pub fn write_until(&self, deadline: Instant) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_limited(Some(deadline))
    }

    /// Whether a panic has unwound through a write guard. Without the lock, out of date at once.
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
    /// The reference inside [`PoisonError`](crate::PoisonError) if the lock is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    fn read_limited(&self, deadline: Option<Instant>) -> TryLockResult<RwLockReadGuard<'_, T>> {
        if self.0.raw.read(deadline) { Ok(self.reading()?) } else { Err(TryLockError::WouldBlock) }
    }

    fn write_limited(&self, deadline: Option<Instant>) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        if self.0.raw.write(deadline) { Ok(self.writing()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Makes the guard after the caller has acquired `raw` for reading.
    fn reading(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.0.poison.result(RwLockReadGuard::of(&self.0))
    }

    /// Makes the guard after the caller has acquired `raw` for writing.
    fn writing(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        // SAFETY: the callers have just acquired the lock for writing.
        let guard = RwLockWriteGuard(unsafe { self.0.exclusive() });
        self.0.poison.result(guard)
    }
}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// Makes the guard of a lock that the caller holds for reading.
    fn of(lock: &'a Guarded<RawRwLock, T>) -> RwLockReadGuard<'a, T> {
        // SAFETY: the pointer to the data of a lock is not null.
        let data = unsafe { NonNull::new_unchecked(lock.data()) };
        RwLockReadGuard { data, raw: &lock.raw, lives: PhantomData }
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns the access into a shared one, with no other writer in between.
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
        // SAFETY: the guard holds the lock for reading, so nobody writes.
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
        self.0.debug("RwLock", self.try_read(), f)
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
