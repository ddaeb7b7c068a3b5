//! nanosleep(2) and its like.

use std::ffi::{c_int, c_uint};
use std::time::{Duration, Instant};

use kumihimo_runtime::{park, thread};

use crate::deadline::{Deadline, check};
use crate::failed;

/// The longest single sleep. A time that the runtime's clock cannot count up to is slept in parts.
const PART: Duration = Duration::from_secs(1 << 30);

fn sleep_until(deadline: Deadline) {
    loop {
        let instant = deadline.instant().or_else(|| Instant::now().checked_add(PART));
        thread::sleep_until(instant.unwrap_or_else(Instant::now));
        if deadline.has_passed() {
            return;
        }
    }
}

/// Sleeps for `time`, which is not negative. Blocks the microprocess.
fn sleep_for(time: libc::timespec) {
    let whole = Duration::new(time.tv_sec.cast_unsigned(), 0);
    let time = whole.saturating_add(Duration::from_nanos(time.tv_nsec.cast_unsigned()));
    match Instant::now().checked_add(time) {
        Some(deadline) => thread::sleep_until(deadline),
        None => loop {
            thread::sleep(PART);
        },
    }
}

/// Checks the time of a relative sleep, as the kernel does.
fn check_length(time: &libc::timespec) -> Result<(), c_int> {
    if time.tv_sec < 0 { Err(libc::EINVAL) } else { check(time) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_nanosleep(
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        // The kernel reports a bad address.
        if !park::may_switch() || time.is_null() {
            return libc::nanosleep(time, left);
        }
        match check_length(&*time) {
            Ok(()) => {
                sleep_for(*time);
                0
            }
            Err(error) => failed(error),
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let is_known = matches!(
            clock,
            libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME | libc::CLOCK_TAI
        );
        if !park::may_switch() || time.is_null() || !is_known {
            return libc::clock_nanosleep(clock, flags, time, left);
        }
        if let Err(error) = check_length(&*time) {
            return error;
        }
        if flags & libc::TIMER_ABSTIME == 0 {
            sleep_for(*time);
        } else {
            sleep_until(Deadline::At(clock, *time));
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_usleep(time: c_uint) -> c_int {
    if !park::may_switch() {
        // SAFETY: an integer.
        return unsafe { libc::usleep(time) };
    }
    thread::sleep(Duration::from_micros(time.into()));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sleep(time: c_uint) -> c_uint {
    if !park::may_switch() {
        // SAFETY: an integer.
        return unsafe { libc::sleep(time) };
    }
    thread::sleep(Duration::from_secs(time.into()));
    0
}
