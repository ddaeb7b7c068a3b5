//! pthread_cond_wait(3) and its like.
//!
//! A condition variable has no state here: its waiters are those in the lot at its address. So it
//! may be destroyed, and its memory used again, as soon as the waiters were woken, before they run.
//! All threads wait this way, kernel threads included, because a signal must choose among all.

use std::ffi::c_int;

use libc::{pthread_cond_t, pthread_mutex_t};

use crate::lock::lot::{self, End, Kind};
use crate::lock::mutex;
use crate::loom::libc;
use crate::loom::park::Wait;
use crate::signal::cancel;
use crate::signal::section::{Section, handle_interruption};
use crate::special;
use crate::start::phase;
use crate::thread::record::own_signals;
use crate::time::deadline::Deadline;

unsafe extern "C" {
    #[cfg_attr(not(loom), link_name = "__wrap_pthread_cond_clockwait")]
    fn pthread_cond_clockwait(
        condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        clock: libc::clockid_t,
        at: *const libc::timespec,
    ) -> c_int;
}

/// Index of `__wrefs` among the 32-bit words, and its flags (nptl/pthread_cond_common.c of glibc).
const FLAGS: usize = 9;
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// # Safety
/// `condition` is a condition variable.
unsafe fn flags(condition: *const pthread_cond_t) -> u32 {
    // SAFETY: the caller's promise; the flags change at initialisation only.
    unsafe { condition.cast::<u32>().add(FLAGS).read_volatile() }
}

/// Whether the C library handles the condition variable: other processes share it, or the process
/// has no runtime.
unsafe fn is_real(condition: *const pthread_cond_t) -> bool {
    // SAFETY: the caller's promise.
    !phase::has_started() || unsafe { flags(condition) } & SHARED != 0
}

pub(crate) unsafe fn wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Deadline,
) -> c_int {
    let key = condition.addr();
    let _section = Section::enter();
    own_signals().note_waiter();
    // In the lot before the mutex is released: the next thread that locks it finds the waiter.
    lot::enter(key, Kind::Condition, |entered| {
        // SAFETY: the caller's promise.
        match unsafe { mutex::unlock(mutex) } {
            0 => {}
            error => {
                entered.leave();
                return error;
            }
        }
        let mut end = entered.wait(Wait::Condvar(key), deadline.instant());
        // The clock may have been set back since the deadline was converted.
        while end == End::TimedOut && !deadline.has_passed() {
            end = lot::wait(key, Kind::Condition, Wait::Condvar(key), deadline.instant(), |_| true);
        }
        if end == End::Interrupted {
            // Before the mutex is locked, which the sender of the signal may hold. Then the wait
            // ends, as a spurious wake-up does.
            handle_interruption();
        }
        // SAFETY: as above.
        let locked = own_signals().cancel.deferred(|| unsafe { mutex::lock(mutex) });
        match (locked, end) {
            (0, End::TimedOut) => libc::ETIMEDOUT,
            (locked, _) => locked,
        }
    })
}

unsafe fn wait_for_ever(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if is_real(condition) {
            return special::as_kernel_thread(|| libc::pthread_cond_wait(condition, mutex));
        }
        wait(condition, mutex, Deadline::Never)
    }
}

pub(crate) fn wake(condition: *mut pthread_cond_t, most: usize) {
    lot::wake(condition.addr(), most, |kind| kind == Kind::Condition);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    cancel::point();
    // SAFETY: the caller's promise.
    let done = unsafe { wait_for_ever(condition, mutex) };
    // With the mutex locked again.
    cancel::point();
    done
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    at: *const libc::timespec,
) -> c_int {
    cancel::point();
    // SAFETY: the caller's promise.
    let done = unsafe {
        if is_real(condition) {
            return special::as_kernel_thread(|| {
                libc::pthread_cond_timedwait(condition, mutex, at)
            });
        }
        let monotonic = flags(condition) & MONOTONIC != 0;
        let clock = if monotonic { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME };
        match Deadline::at(clock, at) {
            Ok(deadline) => wait(condition, mutex, deadline),
            Err(error) => error,
        }
    };
    cancel::point();
    done
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    at: *const libc::timespec,
) -> c_int {
    cancel::point();
    // SAFETY: the caller's promise.
    let done = unsafe {
        if is_real(condition) {
            return special::as_kernel_thread(|| {
                pthread_cond_clockwait(condition, mutex, clock, at)
            });
        }
        match Deadline::at(clock, at) {
            Ok(deadline) => wait(condition, mutex, deadline),
            Err(error) => error,
        }
    };
    cancel::point();
    done
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_cond_signal(
    condition: *mut pthread_cond_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if is_real(condition) {
            return libc::pthread_cond_signal(condition);
        }
        wake(condition, 1);
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_cond_broadcast(
    condition: *mut pthread_cond_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if is_real(condition) {
            return libc::pthread_cond_broadcast(condition);
        }
        wake(condition, usize::MAX);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_cond_destroy(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's promise. Waiters in the lot refer to the address only, so there is
    // nothing to wait for; the C library's function waits for those of its own.
    unsafe { libc::pthread_cond_destroy(condition) }
}
