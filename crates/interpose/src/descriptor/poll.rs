//! poll(2) and ppoll(2) for one socket, as clients and servers wait with a time-out.
//!
//! Calls for several descriptors, or for none with a signal mask, go to the C library.

use std::ffi::{c_int, c_short};
use std::time::Duration;

use kumihimo_arch::system_call;
use kumihimo_runtime::park;
use kumihimo_runtime::readiness::{Interest, Source};
use libc::{nfds_t, pollfd};

use crate::deadline::{Deadline, check};
use crate::descriptor::{returned, table};
use crate::failed;

const READ: c_short = libc::POLLIN | libc::POLLRDNORM;
const WRITE: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// Looks without waiting.
fn look(one: *mut pollfd) -> isize {
    // SAFETY: the caller passes a live structure.
    unsafe { system_call(libc::SYS_poll, [one.expose_provenance(), 1, 0, 0, 0, 0]) }
}

/// Polls one socket for one direction. `None`: the call is for the C library.
///
/// # Safety
/// `one` is a live structure.
unsafe fn poll_one(one: *mut pollfd, deadline: Deadline) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let (fd, events) = unsafe { ((*one).fd, (*one).events) };
    let interest = match (events & READ != 0, events & WRITE != 0) {
        (true, false) => Interest::Read,
        (false, true) => Interest::Write,
        _ => return None,
    };
    if !park::may_switch() {
        return None;
    }
    let place = table::place(fd).filter(|place| place.is_socket(fd))?;
    let mut source = place.source();
    loop {
        let seen = source.as_ref().map(|source| source.seen(interest));
        // Not after a call that found nothing (`transfer`), unless something has come since.
        if source.as_ref().is_none_or(|source| source.likely_ready(interest)) {
            match look(one) {
                0 => {}
                result => return Some(returned(result) as c_int),
            }
        }
        if deadline.has_passed() {
            // SAFETY: the caller's promise.
            unsafe { (*one).revents = 0 };
            return Some(0);
        }
        let own = source.get_or_insert_with(|| place.source_of(fd));
        let seen = seen.unwrap_or_else(|| Source::new(fd).seen(interest));
        let waited = own.wait(interest, seen, deadline.instant());
        // Closed meanwhile, or not to be waited for: the kernel says what there is to say.
        if own.is_retired() {
            source = None;
        } else if let Err(error) = waited {
            if error.kind() != std::io::ErrorKind::TimedOut {
                return None;
            }
        } else if own.seen(interest) != seen && !own.has_lasting_edge(interest) {
            // An edge says that the descriptor is ready, and nothing else that poll(2) reports
            // unasked. What came may be gone, as after any poll(2).
            // SAFETY: as above.
            unsafe { (*one).revents = events & (READ | WRITE) };
            return Some(1);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_poll(all: *mut pollfd, count: nfds_t, time: c_int) -> c_int {
    if count == 1 && time != 0 && !all.is_null() {
        let deadline = match u64::try_from(time) {
            Ok(time) => Deadline::after(Duration::from_millis(time)),
            Err(_) => Deadline::Never,
        };
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { poll_one(all, deadline) } {
            return done;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { libc::poll(all, count, time) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_ppoll(
    all: *mut pollfd,
    count: nfds_t,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    if count == 1 && mask.is_null() && !all.is_null() {
        // SAFETY: the caller's promise.
        let deadline = match unsafe { time.as_ref() } {
            None => Deadline::Never,
            Some(time) => match (check(time), u64::try_from(time.tv_sec)) {
                (Ok(()), Ok(seconds)) => {
                    Deadline::after(Duration::new(seconds, time.tv_nsec as u32))
                }
                _ => return failed(libc::EINVAL),
            },
        };
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { poll_one(all, deadline) } {
            return done;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { libc::ppoll(all, count, time, mask) }
}

unsafe extern "C" {
    fn __chk_fail() -> !;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose___poll_chk(
    all: *mut pollfd,
    count: nfds_t,
    time: c_int,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            __chk_fail();
        }
        kumi_interpose_poll(all, count, time)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose___ppoll_chk(
    all: *mut pollfd,
    count: nfds_t,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            __chk_fail();
        }
        kumi_interpose_ppoll(all, count, time, mask)
    }
}
