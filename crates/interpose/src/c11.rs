//! Threads, mutexes and condition variables of C11, on those of POSIX, as in the C library.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use libc::{pthread_cond_t, pthread_mutex_t, pthread_t};

use crate::lock::{condition, mutex};
use crate::real::libc;
use crate::thread;
use crate::thread::call::Call;
use crate::thread::identity;
use crate::time::sleep;

// <threads.h> of glibc.
const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

fn result(error: c_int) -> c_int {
    match error {
        0 => SUCCESS,
        libc::ENOMEM | libc::EAGAIN => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        libc::EBUSY => BUSY,
        _ => ERROR,
    }
}

type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

unsafe extern "C-unwind" fn run(passed: *mut c_void) -> *mut c_void {
    // SAFETY: `thrd_create` has passed it, to this call only.
    let call = unsafe { Call::<Routine>::take(passed) };
    // SAFETY: the creator's promise.
    as_value(unsafe { (call.routine)(call.argument) })
}

/// A result of a C11 thread as the value of a POSIX one.
fn as_value(result: c_int) -> *mut c_void {
    std::ptr::without_provenance_mut(result as isize as usize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_thrd_create(
    to: *mut pthread_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    let passed = Call { routine, argument }.pass();
    // SAFETY: the caller's promise.
    unsafe {
        let done = thread::kumi_interpose_pthread_create(to, std::ptr::null(), run, passed);
        if done != 0 {
            let _ = Call::<Routine>::take(passed);
        }
        result(done)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_thrd_join(thread: pthread_t, to: *mut c_int) -> c_int {
    let mut value = MaybeUninit::uninit();
    // SAFETY: the caller's promise; the value is written if the join succeeds.
    unsafe {
        let done = thread::kumi_interpose_pthread_join(thread, value.as_mut_ptr());
        if done == 0 && !to.is_null() {
            *to = value.assume_init().addr() as c_int;
        }
        result(done)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_thrd_detach(thread: pthread_t) -> c_int {
    // SAFETY: the caller's promise.
    result(unsafe { thread::kumi_interpose_pthread_detach(thread) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_thrd_exit(value: c_int) -> ! {
    // SAFETY: the caller's promise.
    unsafe { thread::kumi_interpose_pthread_exit(as_value(value)) }
}

#[unsafe(no_mangle)]
extern "C" fn kumi_interpose_thrd_yield() {
    identity::kumi_interpose_sched_yield();
}

/// 0, -1 if a signal came, or another negative value for an error.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_thrd_sleep(
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    let clock = libc::CLOCK_REALTIME;
    // SAFETY: the caller's promise.
    match unsafe { sleep::kumi_interpose_clock_nanosleep(clock, 0, time, left) } {
        0 => 0,
        libc::EINTR => -1,
        _ => -2,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_mtx_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise: a `mtx_t` has the layout of a `pthread_mutex_t`.
    result(unsafe { mutex::kumi_interpose_pthread_mutex_lock(mutex) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_mtx_timedlock(
    mutex: *mut pthread_mutex_t,
    at: *const libc::timespec,
) -> c_int {
    // SAFETY: as above.
    result(unsafe { mutex::kumi_interpose_pthread_mutex_timedlock(mutex, at) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as above.
    result(unsafe { mutex::kumi_interpose_pthread_mutex_trylock(mutex) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as above.
    result(unsafe { mutex::unlock(mutex) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_cnd_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: as above, for `cnd_t`.
    result(unsafe { condition::kumi_interpose_pthread_cond_wait(condition, mutex) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_cnd_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    at: *const libc::timespec,
) -> c_int {
    // SAFETY: as above.
    result(unsafe { condition::kumi_interpose_pthread_cond_timedwait(condition, mutex, at) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_cnd_signal(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: as above.
    result(unsafe { condition::kumi_interpose_pthread_cond_signal(condition) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_cnd_broadcast(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: as above.
    result(unsafe { condition::kumi_interpose_pthread_cond_broadcast(condition) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_cnd_destroy(condition: *mut pthread_cond_t) {
    // SAFETY: as above.
    unsafe { libc::pthread_cond_destroy(condition) };
}
