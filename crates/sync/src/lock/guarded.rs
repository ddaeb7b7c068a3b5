//! Data under a lock, with its poison flag: the common part of the mutex and the readers-writer
//! lock.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::lock::poison::{self, LockResult, TryLockError, TryLockResult};
use crate::loom::const_fn;

/// Lock without data that grants exclusive access.
pub(crate) trait RawExclusive {
    /// Ends the exclusive access.
    ///
    /// # Safety
    /// The caller must hold the lock exclusively.
    unsafe fn unlock_exclusive(&self);
}

/// Data, the lock that guards the data, and the poison flag.
// The lock is first, so its address is the address by which deadlock reports name it. The lock's
// word, the flag and the data mostly share a cache line.
#[repr(C)]
pub(crate) struct Guarded<R, T: ?Sized> {
    pub(crate) raw: R,
    pub(crate) poison: poison::Flag,
    data: UnsafeCell<T>,
}

// As in std: a panic that leaves the data half changed sets the poison flag.
impl<R, T: ?Sized> UnwindSafe for Guarded<R, T> {}
impl<R, T: ?Sized> RefUnwindSafe for Guarded<R, T> {}

impl<R, T> Guarded<R, T> {
    const_fn! {
        #[inline]
        pub(crate) fn new(raw: R, data: T) -> Guarded<R, T> {
            Guarded { raw, poison: poison::Flag::new(), data: UnsafeCell::new(data) }
        }
    }

    /// Consumes the lock and returns the data. Owning the lock rules out other guards.
    pub(crate) fn into_inner(self) -> LockResult<T> {
        let data = self.data.into_inner();
        self.poison.result(data)
    }
}

impl<R, T: ?Sized> Guarded<R, T> {
    /// Returns the data without locking. The exclusive borrow rules out other guards.
    pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
        let data = self.data.get_mut();
        self.poison.result(data)
    }

    /// Returns a pointer to the data. The state of the lock determines the permitted accesses.
    pub(crate) fn data(&self) -> *mut T {
        self.data.get()
    }
}

impl<R: RawExclusive, T: ?Sized> Guarded<R, T> {
    /// Creates the guard of the exclusive access that the caller has acquired.
    ///
    /// # Safety
    /// The caller must hold `raw` exclusively; the guard then owns that access.
    #[inline]
    pub(crate) unsafe fn exclusive(&self) -> Exclusive<'_, R, T> {
        Exclusive { lock: self, poison: self.poison.guard(), not_send: PhantomData }
    }
}

impl<R, T: ?Sized + fmt::Debug> Guarded<R, T> {
    /// Formats a lock of type `name`; `attempt` is the result of trying to lock it, and `locked`
    /// stands for the data of a held lock.
    pub(crate) fn debug<G: Deref<Target = T>>(
        &self,
        name: &str,
        locked: &dyn fmt::Debug,
        attempt: TryLockResult<G>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let mut d = f.debug_struct(name);
        match attempt {
            Ok(guard) => d.field("data", &&*guard),
            Err(TryLockError::Poisoned(e)) => d.field("data", &&**e.get_ref()),
            Err(TryLockError::WouldBlock) => d.field("data", locked),
        };
        d.field("poisoned", &self.poison.get());
        d.finish_non_exhaustive()
    }
}

/// Guard of exclusive access to the data. Dropping the guard poisons the lock if a panic is
/// unwinding, and unlocks.
///
/// Not `Send`: only the thread that locked may unlock.
pub(crate) struct Exclusive<'a, R: RawExclusive, T: ?Sized> {
    lock: &'a Guarded<R, T>,
    poison: poison::Guard,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out `&T` only.
unsafe impl<R: RawExclusive + Sync, T: ?Sized + Sync> Sync for Exclusive<'_, R, T> {}

impl<'a, R: RawExclusive, T: ?Sized> Exclusive<'a, R, T> {
    /// Returns the lock below the guard.
    pub(crate) fn lock(&self) -> &'a Guarded<R, T> {
        self.lock
    }

    /// Consumes the guard without unlocking: the caller then holds the lock exclusively.
    pub(crate) fn into_lock(self) -> &'a Guarded<R, T> {
        let this = std::mem::ManuallyDrop::new(self);
        this.lock.poison.done(&this.poison);
        this.lock
    }
}

impl<R: RawExclusive, T: ?Sized> Deref for Exclusive<'_, R, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its holder has the lock exclusively.
        unsafe { &*self.lock.data.get() }
    }
}

impl<R: RawExclusive, T: ?Sized> DerefMut for Exclusive<'_, R, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<R: RawExclusive, T: ?Sized> Drop for Exclusive<'_, R, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.done(&self.poison);
        // SAFETY: a guard exists only while its holder has the lock exclusively.
        unsafe { self.lock.raw.unlock_exclusive() };
    }
}
