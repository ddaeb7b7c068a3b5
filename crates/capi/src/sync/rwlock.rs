//! Readers-writer locks.

use std::ffi::c_int;

use kumihimo::sync::raw;

use crate::error::{Failure, catch_failure};
use crate::object::{Content, Object, User};
use crate::time;

/// Content of a `kumi_rwlock`.
pub struct RwLock(raw::RwLock);

impl RwLock {
    fn check_not_writer(&self) -> Result<(), Failure> {
        if self.0.is_written_by_caller() {
            return Err(Failure::constant(
                libc::EDEADLK,
                c"the caller holds the lock for writing already",
            ));
        }
        Ok(())
    }
}

impl Content for RwLock {
    const TAG: u64 = u64::from_be_bytes(*b"\0krwlock");
    const NAME: &'static str = "lock";

    fn initial() -> Option<RwLock> {
        Some(RwLock(raw::RwLock::new()))
    }

    fn is_unused(&self) -> bool {
        self.0.is_unused()
    }
}

fn busy() -> Failure {
    Failure::constant(libc::EBUSY, c"the lock is held")
}

fn late() -> Failure {
    Failure::constant(libc::ETIMEDOUT, c"the lock was not free within the time limit")
}

/// Runs the body of a function on a lock.
///
/// # Safety
/// `lock` is NULL, or points to an object.
unsafe fn with(lock: *mut Object<RwLock>, f: impl FnOnce(&RwLock) -> Result<(), Failure>) -> c_int {
    catch_failure(|| {
        // SAFETY: the caller's contract.
        let (lock, _user): (_, User<'_>) = unsafe { Object::used(lock) }?;
        f(lock)
    })
}

/// Initialises a lock. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_init(lock: *mut Object<RwLock>) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { Object::init(lock, RwLock(raw::RwLock::new())) })
}

/// Destroys a lock. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_destroy(lock: *mut Object<RwLock>) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { Object::destroy(lock) })
}

/// Locks for reading. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_rdlock(lock: *mut Object<RwLock>) -> c_int {
    // SAFETY: the interface's contract.
    unsafe {
        with(lock, |lock| {
            lock.check_not_writer()?;
            lock.0.read(None);
            Ok(())
        })
    }
}

/// Locks for reading if that is possible at once. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_tryrdlock(lock: *mut Object<RwLock>) -> c_int {
    // SAFETY: the interface's contract.
    unsafe { with(lock, |lock| lock.0.try_read().then_some(()).ok_or_else(busy)) }
}

/// Locks for reading within a time limit. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_timedrdlock(
    lock: *mut Object<RwLock>,
    timeout_ns: i64,
) -> c_int {
    // SAFETY: the interface's contract.
    unsafe {
        with(lock, |lock| {
            let deadline = time::deadline(timeout_ns)?;
            lock.check_not_writer()?;
            lock.0.read(deadline).then_some(()).ok_or_else(late)
        })
    }
}

/// Locks for writing. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_wrlock(lock: *mut Object<RwLock>) -> c_int {
    // SAFETY: the interface's contract.
    unsafe {
        with(lock, |lock| {
            lock.check_not_writer()?;
            lock.0.write(None);
            Ok(())
        })
    }
}

/// Locks for writing if that is possible at once. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_trywrlock(lock: *mut Object<RwLock>) -> c_int {
    // SAFETY: the interface's contract.
    unsafe { with(lock, |lock| lock.0.try_write().then_some(()).ok_or_else(busy)) }
}

/// Locks for writing within a time limit. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_timedwrlock(
    lock: *mut Object<RwLock>,
    timeout_ns: i64,
) -> c_int {
    // SAFETY: the interface's contract.
    unsafe {
        with(lock, |lock| {
            let deadline = time::deadline(timeout_ns)?;
            lock.check_not_writer()?;
            lock.0.write(deadline).then_some(()).ok_or_else(late)
        })
    }
}

/// Unlocks, whichever way the caller holds the lock. See kumihimo/rwlock.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_rwlock_unlock(lock: *mut Object<RwLock>) -> c_int {
    // SAFETY: the interface's contract.
    unsafe {
        with(lock, |lock| {
            if lock.0.is_written_by_caller() {
                lock.0.unlock_write();
            } else if lock.0.readers() > 0 {
                lock.0.unlock_read();
            } else {
                return Err(Failure::constant(libc::EPERM, c"the caller does not hold the lock"));
            }
            Ok(())
        })
    }
}
