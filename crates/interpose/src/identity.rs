//! Numbers and scheduling of threads.

use std::ffi::c_int;

use kumihimo_runtime::{park, thread as microprocess};
use libc::pthread_t;

use crate::record;

/// The number of the calling thread. A microprocess has one of its own, which is no ID of a kernel
/// thread, and which stays the same whatever kernel thread it runs on.
pub(crate) fn gettid() -> libc::pid_t {
    if record::is_created() {
        return record::number();
    }
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}

#[unsafe(no_mangle)]
extern "C" fn kumi_interpose_gettid() -> libc::pid_t {
    gettid()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kumi_interpose_sched_yield() -> c_int {
    if park::may_switch() {
        microprocess::yield_now();
        return 0;
    }
    // SAFETY: takes nothing.
    unsafe { libc::sched_yield() }
}

/// Replaces pthread_getschedparam(3). A microprocess has the ordinary class.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_getschedparam(
    thread: pthread_t,
    policy: *mut c_int,
    parameters: *mut libc::sched_param,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if record::number_of(thread).is_none() {
            return libc::pthread_getschedparam(thread, policy, parameters);
        }
        *policy = libc::SCHED_OTHER;
        (*parameters).sched_priority = 0;
    }
    0
}

/// Replaces pthread_setschedprio(3). The ordinary class has one priority.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_setschedprio(
    thread: pthread_t,
    priority: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if record::number_of(thread).is_none() {
            return pthread_setschedprio(thread, priority);
        }
    }
    if priority == 0 { 0 } else { libc::EINVAL }
}

unsafe extern "C" {
    fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int;
}
