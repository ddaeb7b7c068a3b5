//! Mutexes.

use std::cell::Cell;
use std::ffi::c_int;

use kumihimo::sync::raw;

use crate::error::{Failure, catch_failure};
use crate::object::{Content, Object};
use crate::time;

/// `KUMI_MUTEX_RECURSIVE`.
pub const RECURSIVE: u32 = 1;

/// Content of a `kumi_mutex`.
pub struct Mutex {
    pub(crate) raw: raw::Mutex,
    is_recursive: bool,
    /// Number of locks by the owner beyond the first. Only the owner accesses it.
    depth: Cell<u32>,
}

// SAFETY: only the owner of `raw` accesses `depth`.
unsafe impl Sync for Mutex {}

impl Mutex {
    fn new(is_recursive: bool) -> Mutex {
        Mutex { raw: raw::Mutex::new(), is_recursive, depth: Cell::new(0) }
    }

    /// Locks again by the owner.
    #[cold]
    fn relock(&self, is_trial: bool) -> Result<(), Failure> {
        if !self.is_recursive {
            return Err(if is_trial {
                Failure::constant(libc::EBUSY, c"the mutex is locked, by the caller")
            } else {
                Failure::constant(libc::EDEADLK, c"the caller holds the mutex already")
            });
        }
        let deeper = self.depth.get().checked_add(1);
        self.depth.set(deeper.ok_or_else(|| {
            Failure::constant(libc::EAGAIN, c"the mutex is locked too many times")
        })?);
        Ok(())
    }

    /// Checks that the caller holds the mutex.
    #[inline]
    pub(crate) fn check_owner(&self) -> Result<(), Failure> {
        if self.raw.is_held_by_caller() {
            return Ok(());
        }
        Err(Failure::constant(libc::EPERM, c"the caller does not hold the mutex"))
    }

    /// Refuses to wait in a condition variable with more than one lock to release.
    pub(crate) fn check_single(&self) -> Result<(), Failure> {
        if self.depth.get() == 0 {
            return Ok(());
        }
        Err(Failure::invalid("the caller holds the recursive mutex more than once"))
    }
}

impl Content for Mutex {
    const TAG: u64 = u64::from_be_bytes(*b"\0kmutex\0");
    const NAME: &'static str = "mutex";

    fn initial() -> Option<Mutex> {
        Some(Mutex::new(false))
    }

    fn is_unused(&self) -> bool {
        self.raw.is_unused()
    }
}

/// Initialises a mutex. See kumihimo/mutex.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_mutex_init(mutex: *mut Object<Mutex>, flags: u32) -> c_int {
    catch_failure(|| {
        if flags & !RECURSIVE != 0 {
            return Err(Failure::invalid(format!("unknown flags of a mutex: {flags:#x}")));
        }
        // SAFETY: the interface's contract.
        unsafe { Object::init(mutex, Mutex::new(flags & RECURSIVE != 0)) }
    })
}

/// Destroys a mutex. See kumihimo/mutex.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_mutex_destroy(mutex: *mut Object<Mutex>) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { Object::destroy(mutex) })
}

/// Locks a mutex. See kumihimo/mutex.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_mutex_lock(mutex: *mut Object<Mutex>) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let mutex = unsafe { Object::content(mutex) }?;
        if !mutex.raw.try_lock() {
            if mutex.raw.is_held_by_caller() {
                return mutex.relock(false);
            }
            mutex.raw.lock(None);
        }
        Ok(())
    })
}

/// Locks a mutex if it is free. See kumihimo/mutex.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_mutex_trylock(mutex: *mut Object<Mutex>) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let mutex = unsafe { Object::content(mutex) }?;
        if mutex.raw.try_lock() {
            Ok(())
        } else if mutex.raw.is_held_by_caller() {
            mutex.relock(true)
        } else {
            Err(Failure::constant(libc::EBUSY, c"the mutex is locked"))
        }
    })
}

/// Locks a mutex within a time limit. See kumihimo/mutex.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_mutex_timedlock(mutex: *mut Object<Mutex>, timeout_ns: i64) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let mutex = unsafe { Object::content(mutex) }?;
        let deadline = time::deadline(timeout_ns)?;
        if mutex.raw.try_lock() {
            Ok(())
        } else if mutex.raw.is_held_by_caller() {
            mutex.relock(false)
        } else if mutex.raw.lock(deadline) {
            Ok(())
        } else {
            Err(Failure::constant(libc::ETIMEDOUT, c"the mutex was not free within the time limit"))
        }
    })
}

/// Unlocks a mutex. See kumihimo/mutex.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_mutex_unlock(mutex: *mut Object<Mutex>) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let mutex = unsafe { Object::content(mutex) }?;
        mutex.check_owner()?;
        if let Some(depth) = mutex.depth.get().checked_sub(1) {
            mutex.depth.set(depth);
        } else {
            // SAFETY: the caller holds the mutex.
            unsafe { mutex.raw.unlock() };
        }
        Ok(())
    })
}
