//! Counting semaphores.

use std::ffi::c_int;

use kumihimo::sync::Semaphore as Permits;

use crate::error::{Failure, catch_failure};
use crate::gate::bytes::non_null_mut;
use crate::object::{Content, Object};
use crate::time;

/// Largest value of a semaphore, `KUMI_SEMAPHORE_MAX`.
pub const MAX: usize = i32::MAX as usize;

/// Content of a `kumi_semaphore`.
pub struct Semaphore(Permits);

impl Content for Semaphore {
    const TAG: u64 = u64::from_be_bytes(*b"\0ksem\0\0\0");
    const NAME: &'static str = "semaphore";

    fn initial() -> Option<Semaphore> {
        Some(Semaphore(Permits::new(0)))
    }

    fn is_unused(&self) -> bool {
        !self.0.has_waiters()
    }
}

/// Initialises a semaphore. See kumihimo/semaphore.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_semaphore_init(
    semaphore: *mut Object<Semaphore>,
    value: u32,
) -> c_int {
    catch_failure(|| {
        if value as usize > MAX {
            return Err(Failure::invalid(format!("a semaphore of {value}: at most {MAX}")));
        }
        // SAFETY: the interface's contract.
        unsafe { Object::init(semaphore, Semaphore(Permits::new(value as usize))) }
    })
}

/// Destroys a semaphore. See kumihimo/semaphore.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_semaphore_destroy(semaphore: *mut Object<Semaphore>) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { Object::destroy(semaphore) })
}

/// Decrements, and waits for a positive value before. See kumihimo/semaphore.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_semaphore_wait(semaphore: *mut Object<Semaphore>) -> c_int {
    // SAFETY: the interface's contract.
    unsafe { kumi_semaphore_timedwait(semaphore, time::FOREVER) }
}

/// Decrements if the value is positive. See kumihimo/semaphore.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_semaphore_trywait(semaphore: *mut Object<Semaphore>) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (semaphore, _user) = unsafe { Object::used(semaphore) }?;
        match semaphore.0.try_acquire() {
            Some(permit) => permit.forget(),
            None => return Err(Failure::constant(libc::EAGAIN, c"the semaphore is 0")),
        }
        Ok(())
    })
}

/// As [`kumi_semaphore_wait`], within a time limit. See kumihimo/semaphore.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_semaphore_timedwait(
    semaphore: *mut Object<Semaphore>,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (semaphore, _user) = unsafe { Object::used(semaphore) }?;
        let permit = match time::deadline(timeout_ns)? {
            None => Some(semaphore.0.acquire()),
            Some(deadline) => semaphore.0.acquire_until(deadline),
        };
        match permit {
            Some(permit) => permit.forget(),
            None => {
                return Err(Failure::constant(
                    libc::ETIMEDOUT,
                    c"the semaphore stayed 0 within the time limit",
                ));
            }
        }
        Ok(())
    })
}

/// Increments, and wakes a waiter. See kumihimo/semaphore.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_semaphore_post(semaphore: *mut Object<Semaphore>) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (semaphore, _user) = unsafe { Object::used(semaphore) }?;
        if semaphore.0.available_permits() >= MAX {
            return Err(Failure::constant(libc::EOVERFLOW, c"the semaphore is at its maximum"));
        }
        semaphore.0.add_permits(1);
        Ok(())
    })
}

/// Stores the value. See kumihimo/semaphore.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_semaphore_value(
    semaphore: *mut Object<Semaphore>,
    value: *mut u32,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let ((semaphore, _user), value) =
            unsafe { (Object::used(semaphore)?, non_null_mut(value, "value")?) };
        *value = u32::try_from(semaphore.0.available_permits()).unwrap_or(u32::MAX);
        Ok(())
    })
}
