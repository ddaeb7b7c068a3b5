//! Attributes of the calling kernel thread, by the system calls themselves.
//!
//! For the runtime's kernel threads. A program's calls of the C library mean the microprocess
//! instead ([`crate::thread_attributes`]). [`irrevocable`]: what no call sets back.

pub mod irrevocable;

use std::io;

use libc::clockid_t;

use crate::system_call;

fn call(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    // SAFETY: each caller below passes integers, or pointers to live values of the right type.
    match unsafe { system_call(number, arguments) } {
        error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
        done => Ok(done as usize),
    }
}

fn at<T>(value: &T) -> usize {
    std::ptr::from_ref(value).expose_provenance()
}

fn at_mut<T>(value: &mut T) -> usize {
    std::ptr::from_mut(value).expose_provenance()
}

/// Returns the timer slack in nanoseconds; prctl(2), `PR_GET_TIMERSLACK`.
#[must_use]
pub fn timer_slack() -> u64 {
    call(libc::SYS_prctl, [libc::PR_GET_TIMERSLACK as usize, 0, 0, 0, 0, 0])
        .map_or(0, |slack| slack as u64)
}

/// Sets the timer slack in nanoseconds. Does nothing if a filter refuses it.
pub fn set_timer_slack(nanoseconds: u64) {
    let arguments = [libc::PR_SET_TIMERSLACK as usize, nanoseconds as usize, 0, 0, 0, 0];
    let _ = call(libc::SYS_prctl, arguments);
}

/// Returns the name, with zeros after it; prctl(2), `PR_GET_NAME`.
#[must_use]
pub fn name() -> [u8; 16] {
    let mut name = [0; 16];
    let _ = call(libc::SYS_prctl, [libc::PR_GET_NAME as usize, at_mut(&mut name), 0, 0, 0, 0]);
    name
}

/// Sets the name, of at most 15 bytes and a zero; prctl(2), `PR_SET_NAME`.
pub fn set_name(name: &[u8; 16]) {
    let _ = call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, at(name), 0, 0, 0, 0]);
}

/// Returns the nice value, or 0 if a filter refuses the question; getpriority(2).
#[must_use]
pub fn nice() -> i32 {
    // The kernel returns 20 - nice, so that it is never negative.
    call(libc::SYS_getpriority, [libc::PRIO_PROCESS as usize, 0, 0, 0, 0, 0])
        .map_or(0, |value| 20 - value as i32)
}

/// Sets the nice value.
///
/// # Errors
/// Returns the error of setpriority(2): `EACCES` where the value would fall and the process may not
/// lower it.
pub fn set_nice(nice: i32) -> io::Result<()> {
    let arguments = [libc::PRIO_PROCESS as usize, 0, nice as usize, 0, 0, 0];
    call(libc::SYS_setpriority, arguments).map(drop)
}

/// Whether the process may set a higher nice value back to `nice`: with CAP_SYS_NICE, or within
/// RLIMIT_NICE (capget(2), getrlimit(2)).
#[must_use]
pub fn may_lower_nice_to(nice: i32) -> bool {
    /// `_LINUX_CAPABILITY_VERSION_3` and `CAP_SYS_NICE`; capget(2), capabilities(7).
    const VERSION: u32 = 0x2008_0522;
    const SYS_NICE: u32 = 23;
    let mut header = [VERSION, 0];
    // Effective, permitted and inheritable, twice.
    let mut data = [0u32; 6];
    let asked = call(libc::SYS_capget, [at_mut(&mut header), at_mut(&mut data), 0, 0, 0, 0]);
    if asked.is_ok() && data[0] & 1 << SYS_NICE != 0 {
        return true;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live limit to be written.
    unsafe { libc::getrlimit(libc::RLIMIT_NICE, &raw mut limit) };
    i64::try_from(limit.rlim_cur).is_ok_and(|limit| 20 - limit <= i64::from(nice))
}

/// Sets the alternate signal stack, and returns the one before.
///
/// # Errors
/// Returns the error of sigaltstack(2): `EPERM` on the stack itself, `ENOMEM` for one that is too
/// small, `EINVAL` for unknown flags.
pub fn swap_signal_stack(new: Option<&libc::stack_t>) -> io::Result<libc::stack_t> {
    let mut before =
        libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    let arguments = [new.map_or(0, at), at_mut(&mut before), 0, 0, 0, 0];
    call(libc::SYS_sigaltstack, arguments).map(|_| before)
}

/// Returns the CPU time in nanoseconds; clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`.
#[must_use]
pub fn cpu_time() -> u64 {
    // Cannot fail: Linux has had this clock since 2.6.
    clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of the process in nanoseconds; clock_gettime(2),
/// `CLOCK_PROCESS_CPUTIME_ID`.
#[must_use]
pub fn process_cpu_time() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Returns the interval of the kernel's tick in nanoseconds; clock_getres(2),
/// `CLOCK_MONOTONIC_COARSE`, which the tick advances.
#[must_use]
pub fn tick() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [libc::CLOCK_MONOTONIC_COARSE as usize, at_mut(&mut time), 0, 0, 0, 0];
    call(libc::SYS_clock_getres, arguments).map_or(0, |_| time.tv_nsec as u64)
}

/// Returns the time of `CLOCK_MONOTONIC_COARSE` in nanoseconds; clock_gettime(2). It is up to one
/// [`tick`] old. Async-signal-safe.
#[must_use]
pub fn coarse_time() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE).unwrap_or(0)
}

/// Returns the CPU time of kernel thread `tid` of this process in nanoseconds, or `None` if it has
/// ended; pthread_getcpuclockid(3). Async-signal-safe.
#[must_use]
pub fn cpu_time_of(tid: u32) -> Option<u64> {
    // Number 0 would be the caller.
    if tid == 0 { None } else { clock(cpu_clock_of(tid)) }
}

/// Lowest bits of the number of a thread's CPU clock: `CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK`
/// (include/linux/posix-timers_types.h).
pub const OF_THREAD: clockid_t = 6;

/// Returns the number of the CPU clock of kernel thread `tid`; pthread_getcpuclockid(3).
#[must_use]
pub const fn cpu_clock_of(tid: u32) -> clockid_t {
    !tid.cast_signed() << 3 | OF_THREAD
}

/// Returns the time of a clock in nanoseconds, or `None` if it does not exist.
fn clock(id: clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [id as usize, at_mut(&mut time), 0, 0, 0, 0];
    call(libc::SYS_clock_gettime, arguments).ok()?;
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Binds the kernel thread to a set of CPUs, one bit each.
///
/// # Errors
/// Returns the error of sched_setaffinity(2).
pub fn set_affinity(cpus: &[u64]) -> io::Result<()> {
    let arguments = [0, size_of_val(cpus), cpus.as_ptr().expose_provenance(), 0, 0, 0];
    call(libc::SYS_sched_setaffinity, arguments).map(drop)
}

/// Sets policy and time slice.
///
/// # Errors
/// Returns the error of sched_setattr(2).
pub fn set_scheduling(wanted: &libc::sched_attr) -> io::Result<()> {
    call(libc::SYS_sched_setattr, [0, at(wanted), 0, 0, 0, 0]).map(drop)
}

#[cfg(test)]
mod tests;
