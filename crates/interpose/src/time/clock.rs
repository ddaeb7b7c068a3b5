//! The CPU time of threads: clock_gettime(2), pthread_getcpuclockid(3), getrusage(2).
//!
//! `arch` knows the clock of the calling microprocess. That of another one has a number in the form
//! of the kernel's (`MAKE_THREAD_CPUCLOCK` in include/linux/posix-timers.h), with a thread ID that
//! no kernel thread can have. It shows what the other one has used since it first read a CPU clock
//! of its own.

use std::ffi::c_int;

use kumihimo_arch::kernel_attributes::{OF_THREAD, cpu_clock_of};
use kumihimo_arch::thread_attributes::runtime;
use kumihimo_arch::tls;
use libc::{clockid_t, pthread_t, timespec};

use crate::failed;
use crate::real::libc;
use crate::real::libc::pthread_getcpuclockid;
use crate::thread::record;

/// One more than the largest thread ID of the kernel (pid_max in proc_sys_kernel(5)).
const BEYOND: u32 = 1 << 23;
/// The numbers of microprocesses begin here, with bits that the number of a clock has no room for.
const FIRST: u32 = 1 << 28;

/// The clock of the microprocess with this number.
fn clock_of(number: u32) -> Option<clockid_t> {
    let id = number.checked_sub(FIRST)?.checked_add(BEYOND)?;
    (id < FIRST).then(|| cpu_clock_of(id))
}

/// The block of the microprocess whose clock this is.
fn block_of(clock: clockid_t) -> Option<usize> {
    if clock >= 0 || clock & 7 != OF_THREAD {
        return None;
    }
    let id = (!(clock >> 3)).cast_unsigned();
    tls::block_of(id.checked_sub(BEYOND)? + FIRST)
}

fn as_time(nanoseconds: u64) -> timespec {
    timespec {
        tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
        tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int {
    if clock < 0
        && let Some(block) = block_of(clock)
    {
        let Some(used) = runtime().and_then(|runtime| runtime.cpu_time_of(block)) else {
            return failed(libc::EINVAL);
        };
        // SAFETY: the caller's promise.
        unsafe { *to = as_time(used) };
        return 0;
    }
    // SAFETY: the caller's promise. The definition of `arch`: see `real.rs`.
    unsafe { libc::clock_gettime(clock, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_getcpuclockid(
    thread: pthread_t,
    clock: *mut clockid_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match record::number_of(thread).and_then(clock_of) {
            Some(id) if thread as usize != kumihimo_arch::cpu::fs_base() => {
                *clock = id;
                0
            }
            // The definition of `arch`.
            _ => pthread_getcpuclockid(thread, clock),
        }
    }
}

/// Replaces getrusage(2): the calling microprocess's CPU time, all of it as user time. The other
/// values are those of its kernel thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_getrusage(who: c_int, to: *mut libc::rusage) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::getrusage(who, to) };
    if done == 0
        && who == libc::RUSAGE_THREAD
        && let Some(used) = runtime().and_then(|runtime| runtime.cpu_time())
    {
        // SAFETY: as above.
        unsafe {
            (*to).ru_utime.tv_sec = (used / 1_000_000_000).cast_signed();
            (*to).ru_utime.tv_usec = (used % 1_000_000_000 / 1000).cast_signed();
            (*to).ru_stime = libc::timeval { tv_sec: 0, tv_usec: 0 };
        }
    }
    done
}
