//! nanosleep(2) and its like.

use std::ffi::{c_int, c_uint};
use std::time::{Duration, Instant};

use kumihimo_runtime::{park, thread};

use crate::failed;
use crate::real::libc;
use crate::signal::cancel;
use crate::signal::section::{Section, handle_interruption, is_interrupted};
use crate::time::deadline::{Deadline, check};

/// The longest single sleep. A time that the runtime's clock cannot count up to is slept in parts.
const PART: Duration = Duration::from_secs(1 << 30);

/// Sleeps until the deadline. Returns false if a handler has run before.
fn sleep_until(deadline: Deadline) -> bool {
    let _section = Section::enter();
    loop {
        let instant = deadline.instant().or_else(|| Instant::now().checked_add(PART));
        thread::sleep_until(instant.unwrap_or_else(Instant::now));
        if deadline.has_passed() {
            return true;
        }
        if is_interrupted(true) && handle_interruption().ends(true) {
            return false;
        }
    }
}

/// Sleeps for `time`, which is not negative. Blocks the microprocess. Returns what was left when a
/// handler had run.
fn sleep_for(time: Duration) -> Option<Duration> {
    let deadline = Deadline::after(time);
    if sleep_until(deadline) {
        return None;
    }
    Some(deadline.left().unwrap_or(time))
}

fn length(time: libc::timespec) -> Duration {
    let whole = Duration::from_secs(time.tv_sec.cast_unsigned());
    whole.saturating_add(Duration::from_nanos(time.tv_nsec.cast_unsigned()))
}

/// Sleeps for a time of the program. Returns an error number, and writes what is left.
///
/// # Safety
/// `left` is null or may be written.
unsafe fn sleep_length(time: libc::timespec, left: *mut libc::timespec) -> c_int {
    let Some(rest) = sleep_for(length(time)) else { return 0 };
    if !left.is_null() {
        let tv_sec = rest.as_secs().cast_signed();
        // SAFETY: the caller's promise.
        unsafe { *left = libc::timespec { tv_sec, tv_nsec: rest.subsec_nanos().into() } };
    }
    libc::EINTR
}

/// Checks the time of a relative sleep, as the kernel does.
fn check_length(time: &libc::timespec) -> Result<(), c_int> {
    if time.tv_sec < 0 { Err(libc::EINVAL) } else { check(time) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_nanosleep(
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    cancel::around(|| unsafe {
        // The kernel reports a bad address.
        if !park::may_switch() || time.is_null() {
            return libc::nanosleep(time, left);
        }
        match check_length(&*time).map_or_else(|error| error, |()| sleep_length(*time, left)) {
            0 => 0,
            error => failed(error),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    cancel::point();
    // SAFETY: the caller's promise.
    let error = unsafe { clock_nanosleep(clock, flags, time, left) };
    if error == libc::EINTR {
        cancel::point();
    }
    error
}

/// # Safety
/// As clock_nanosleep(2).
unsafe fn clock_nanosleep(
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
            sleep_length(*time, left)
        } else if sleep_until(Deadline::At(clock, *time)) {
            0
        } else {
            libc::EINTR
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_usleep(time: c_uint) -> c_int {
    cancel::around(|| {
        if !park::may_switch() {
            // SAFETY: an integer.
            return unsafe { libc::usleep(time) };
        }
        match sleep_for(Duration::from_micros(time.into())) {
            None => 0,
            Some(_) => failed(libc::EINTR),
        }
    })
}

/// Returns the seconds that were left when a handler had run, rounded down.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sleep(time: c_uint) -> c_uint {
    cancel::point();
    if !park::may_switch() {
        // SAFETY: an integer.
        return unsafe { libc::sleep(time) };
    }
    let left = sleep_for(Duration::from_secs(time.into()));
    cancel::point();
    left.map_or(0, |left| left.as_secs() as c_uint)
}
