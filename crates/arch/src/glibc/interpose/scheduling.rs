//! Nice value, CPU affinity and scheduling class of the calling thread.
//!
//! Sources: setpriority(2), nice(2), sched_setaffinity(2), sched_setscheduler(2),
//! sched_setparam(2).

use std::ffi::{c_int, c_uint};

use super::{call, call_bound, failed, is_own, runtime};

/// Whether the arguments of setpriority(2) mean the calling thread.
fn is_own_priority(which: c_int, of: libc::id_t) -> bool {
    which == libc::PRIO_PROCESS as c_int && is_own(of.cast_signed())
}

/// Replaces getpriority(2).
#[unsafe(no_mangle)]
pub extern "C" fn getpriority(which: c_uint, of: libc::id_t) -> c_int {
    if is_own_priority(which.cast_signed(), of)
        && let Some(Ok(nice)) = runtime().and_then(|runtime| runtime.nice(None))
    {
        return nice;
    }
    // SAFETY: integers only.
    match unsafe { call(libc::SYS_getpriority, [which as usize, of as usize, 0, 0, 0, 0]) } {
        -1 => -1,
        // The kernel returns 20 - nice, so that it is never negative.
        value => 20 - value as c_int,
    }
}

/// Replaces setpriority(2).
#[unsafe(no_mangle)]
pub extern "C" fn setpriority(which: c_uint, of: libc::id_t, nice: c_int) -> c_int {
    if is_own_priority(which.cast_signed(), of)
        && let Some(runtime) = runtime()
    {
        match runtime.nice(Some(nice.clamp(-20, 19))) {
            Some(Ok(_)) => return 0,
            Some(Err(error)) => return failed(error) as c_int,
            None => runtime.foreign_change(),
        }
    }
    let arguments = [which as usize, of as usize, nice as usize, 0, 0, 0];
    // SAFETY: integers only.
    unsafe { call(libc::SYS_setpriority, arguments) as c_int }
}

/// Replaces nice(2).
#[unsafe(no_mangle)]
pub extern "C" fn nice(by: c_int) -> c_int {
    let which = libc::PRIO_PROCESS as c_uint;
    let wanted = getpriority(which, 0).saturating_add(by).clamp(-20, 19);
    if setpriority(which, 0, wanted) == 0 {
        return wanted;
    }
    // SAFETY: errno belongs to the calling thread.
    unsafe {
        if *libc::__errno_location() == libc::EACCES {
            *libc::__errno_location() = libc::EPERM;
        }
    }
    -1
}

/// Replaces sched_setaffinity(2).
///
/// # Safety
/// Same requirements as sched_setaffinity(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(
    thread: libc::pid_t,
    bytes: usize,
    set: *const libc::cpu_set_t,
) -> c_int {
    let arguments = [thread as usize, bytes, set.expose_provenance(), 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { of_thread(thread, libc::SYS_sched_setaffinity, arguments) as c_int }
}

/// Replaces sched_setscheduler(2).
///
/// # Safety
/// Same requirements as sched_setscheduler(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setscheduler(
    thread: libc::pid_t,
    policy: c_int,
    parameters: *const libc::sched_param,
) -> c_int {
    let arguments = [thread as usize, policy as usize, parameters.expose_provenance(), 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { of_thread(thread, libc::SYS_sched_setscheduler, arguments) as c_int }
}

/// Replaces sched_setparam(2).
///
/// # Safety
/// Same requirements as sched_setparam(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setparam(
    thread: libc::pid_t,
    parameters: *const libc::sched_param,
) -> c_int {
    let arguments = [thread as usize, parameters.expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { of_thread(thread, libc::SYS_sched_setparam, arguments) as c_int }
}

/// Makes a system call that changes `thread`, and binds the caller first if that is its own.
///
/// # Safety
/// The requirements of the system call.
pub(super) unsafe fn of_thread(
    thread: c_int,
    number: libc::c_long,
    arguments: [usize; 6],
) -> libc::c_long {
    // SAFETY: the caller's promise.
    unsafe { if is_own(thread) { call_bound(number, arguments) } else { call(number, arguments) } }
}
