//! Numbers, signals and scheduling of threads.

use std::ffi::c_int;

use kumihimo_runtime::{park, thread as microprocess};
use libc::pthread_t;

use crate::{failed, record};

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

/// Sends a signal to a thread of this library: to the kernel thread of the caller, and for another
/// thread to the process. 0 only checks that the thread exists. Returns an error number.
fn kill(thread: pthread_t, signal: c_int) -> c_int {
    if signal == 0 {
        return 0;
    }
    // SAFETY: system calls with integers.
    unsafe {
        let process = libc::getpid();
        let done = if thread as usize == kumihimo_arch::cpu::fs_base() {
            libc::syscall(libc::SYS_tgkill, process, libc::gettid(), signal) as c_int
        } else {
            libc::kill(process, signal)
        };
        if done == 0 { 0 } else { *libc::__errno_location() }
    }
}

/// Replaces pthread_kill(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_kill(thread: pthread_t, signal: c_int) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { record::number_of(thread) } {
        Some(_) => kill(thread, signal),
        // SAFETY: as above.
        None => unsafe { libc::pthread_kill(thread, signal) },
    }
}

/// Replaces tgkill(2), for the numbers of microprocesses.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_tgkill(
    process: libc::pid_t,
    number: libc::pid_t,
    signal: c_int,
) -> c_int {
    if let Some(thread) = record::with_number(number.cast_unsigned()) {
        return match kill(thread, signal) {
            0 => 0,
            error => failed(error),
        };
    }
    // SAFETY: integers.
    unsafe { libc::syscall(libc::SYS_tgkill, process, number, signal) as c_int }
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
