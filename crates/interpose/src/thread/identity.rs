//! Numbers of threads; sched_yield(2).

use std::ffi::c_int;

use kumihimo_runtime::{park, thread as microprocess};

use crate::real::libc;
use crate::thread::record;

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
