//! Locks without data and without guards, for the C interface: its callers lock and unlock by
//! separate calls.
//!
//! Each type can be asked whether the caller holds it, because a C caller needs an error number
//! where Rust has a guard or a panic.

use std::time::Instant;

use crate::condvar::Condvar;
use crate::lock::rawmutex::RawMutex;
use crate::lock::rawrwlock::RawRwLock;
use crate::loom::me;
use crate::wait::unwind::OnUnwind;

/// The lock of [`crate::Mutex`].
pub struct Mutex(RawMutex);

impl Mutex {
    /// Creates an unlocked mutex.
    #[must_use]
    pub const fn new() -> Mutex {
        Mutex(RawMutex::new())
    }

    /// Locks the mutex. Returns false if the deadline passed first. The caller must not hold the
    /// mutex.
    #[inline]
    pub fn lock(&self, deadline: Option<Instant>) -> bool {
        match deadline {
            None => self.0.lock(),
            Some(deadline) => return self.0.lock_until(deadline),
        }
        true
    }

    /// Locks the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    /// Unlocks the mutex.
    ///
    /// # Safety
    /// The caller must hold the lock.
    #[inline]
    pub unsafe fn unlock(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock() };
    }

    /// Whether the caller holds the mutex.
    #[inline]
    pub fn is_held_by_caller(&self) -> bool {
        self.0.owner() == me()
    }

    /// Whether the mutex is free and no thread waits for it. If so, no earlier unlock accesses the
    /// mutex any more, so that its memory may be freed.
    pub fn is_unused(&self) -> bool {
        self.0.is_unused()
    }

    /// Unlocks the mutex, waits for a notification of `condvar`, and locks the mutex again, also
    /// when the wait unwinds. Returns false if the deadline passed first. Cancellation point.
    ///
    /// Drops `user` between the last access to `condvar` and the lock of the mutex.
    ///
    /// # Safety
    /// The caller must hold the lock.
    pub unsafe fn wait<U>(&self, condvar: &Condvar, user: U, deadline: Option<Instant>) -> bool {
        condvar.wait_unlocked(deadline, |wait| {
            // SAFETY: the caller's contract.
            unsafe { self.0.unlock() };
            let relock = OnUnwind(|| self.0.lock());
            let user = user;
            let notified = wait();
            drop(user);
            std::mem::forget(relock);
            self.0.lock();
            notified
        })
    }
}

impl Default for Mutex {
    fn default() -> Mutex {
        Mutex::new()
    }
}

/// The lock of [`crate::RwLock`].
pub struct RwLock(RawRwLock);

impl RwLock {
    /// Creates an unlocked lock.
    #[must_use]
    pub const fn new() -> RwLock {
        RwLock(RawRwLock::new())
    }

    /// Locks for reading. Returns false if the deadline passed first. The caller must not hold the
    /// lock for writing.
    pub fn read(&self, deadline: Option<Instant>) -> bool {
        self.0.read(deadline)
    }

    /// Locks for reading if that is possible at once.
    pub fn try_read(&self) -> bool {
        self.0.try_read()
    }

    /// Locks for writing. Returns false if the deadline passed first. The caller must not hold the
    /// lock.
    pub fn write(&self, deadline: Option<Instant>) -> bool {
        self.0.write(deadline)
    }

    /// Locks for writing if that is possible at once.
    pub fn try_write(&self) -> bool {
        self.0.try_write()
    }

    /// Ends an access for reading.
    ///
    /// # Safety
    /// The caller must hold the lock for reading.
    pub unsafe fn unlock_read(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock_read() };
    }

    /// Ends an access for writing.
    ///
    /// # Safety
    /// The caller must hold the lock for writing.
    pub unsafe fn unlock_write(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock_write() };
    }

    /// Whether the caller holds the lock for writing.
    pub fn is_written_by_caller(&self) -> bool {
        self.0.writer() == me()
    }

    /// Number of threads that hold the lock for reading.
    pub fn readers(&self) -> u32 {
        self.0.readers()
    }

    /// Whether no thread holds the lock or waits for it.
    pub fn is_unused(&self) -> bool {
        self.0.is_unused()
    }
}

impl Default for RwLock {
    fn default() -> RwLock {
        RwLock::new()
    }
}
