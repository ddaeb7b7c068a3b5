//! Condition variables.

use std::ffi::c_int;
use std::time::Instant;

use kumihimo::sync::Condvar;

use crate::error::{Failure, catch_failure};
use crate::object::{Content, Object};
use crate::sync::mutex::Mutex;
use crate::time;

/// Content of a `kumi_cond`.
pub struct Condition(Condvar);

impl Content for Condition {
    const TAG: u64 = u64::from_be_bytes(*b"\0kcond\0\0");
    const NAME: &'static str = "cond";

    fn initial() -> Option<Condition> {
        Some(Condition(Condvar::new()))
    }

    fn is_unused(&self) -> bool {
        self.0.waiting() == 0
    }
}

/// Initialises a condition variable. See kumihimo/cond.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_cond_init(cond: *mut Object<Condition>) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { Object::init(cond, Condition(Condvar::new())) })
}

/// Destroys a condition variable. See kumihimo/cond.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_cond_destroy(cond: *mut Object<Condition>) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { Object::destroy(cond) })
}

/// # Safety
/// Both pointers are NULL, or point to objects.
unsafe fn wait(
    cond: *mut Object<Condition>,
    mutex: *mut Object<Mutex>,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    let ((cond, user), mutex) = unsafe { (Object::used(cond)?, Object::content(mutex)?) };
    mutex.check_owner()?;
    mutex.check_single()?;
    // SAFETY: the caller holds the mutex.
    if unsafe { mutex.raw.wait(&cond.0, user, deadline) } {
        return Ok(());
    }
    Err(Failure::constant(libc::ETIMEDOUT, c"there was no signal within the time limit"))
}

/// Waits for a signal. See kumihimo/cond.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_cond_wait(
    cond: *mut Object<Condition>,
    mutex: *mut Object<Mutex>,
) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { wait(cond, mutex, None) })
}

/// Waits for a signal within a time limit. See kumihimo/cond.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_cond_timedwait(
    cond: *mut Object<Condition>,
    mutex: *mut Object<Mutex>,
    timeout_ns: i64,
) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { wait(cond, mutex, time::deadline(timeout_ns)?) })
}

/// Waits for a signal until a time of `kumi_now`. See kumihimo/cond.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_cond_wait_until(
    cond: *mut Object<Condition>,
    mutex: *mut Object<Mutex>,
    deadline_ns: i64,
) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { wait(cond, mutex, Some(time::instant(deadline_ns)?)) })
}

/// Wakes one waiter. See kumihimo/cond.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_cond_signal(cond: *mut Object<Condition>) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (cond, _user) = unsafe { Object::used(cond) }?;
        cond.0.notify_one();
        Ok(())
    })
}

/// Wakes all waiters. See kumihimo/cond.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_cond_broadcast(cond: *mut Object<Condition>) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (cond, _user) = unsafe { Object::used(cond) }?;
        cond.0.notify_all();
        Ok(())
    })
}
