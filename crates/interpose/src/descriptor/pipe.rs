//! Reads and writes of pipes, eventfds, timerfds and their like.
//!
//! These have no flag that keeps one call from waiting, so a call is made when poll(2) says that it
//! would not wait. Another process, or a thread of this one, may be faster: then the call waits in
//! the kernel, which costs a kernel thread until the next chance.

use std::ffi::c_int;

use kumihimo_arch::system_call;
use kumihimo_runtime::park;
use kumihimo_runtime::readiness::Interest;
use libc::ssize_t;

use crate::descriptor::transfer::repeat;
use crate::descriptor::{returned, table};
use crate::real::libc;

/// Makes the call if the descriptor is ready, or returns `EAGAIN`.
pub(super) fn when_ready(fd: c_int, interest: Interest, call: impl FnOnce() -> isize) -> isize {
    let events = match interest {
        Interest::Read => libc::POLLIN,
        Interest::Write => libc::POLLOUT,
    };
    let mut look = libc::pollfd { fd, events, revents: 0 };
    let at = (&raw mut look).expose_provenance();
    // SAFETY: one live structure.
    match unsafe { system_call(libc::SYS_poll, [at, 1, 0, 0, 0, 0]) } {
        0 => -(libc::EAGAIN as isize),
        ready if ready < 0 => ready,
        _ => call(),
    }
}

/// The bytes of a counter: an eventfd or a timerfd refuses fewer at once.
const COUNTER: usize = 8;

/// Reads or writes `bytes` by `call`, the system call. `None`: it is for the C library, because the
/// file is of another kind, or the caller is no microprocess.
pub(super) fn transfer(
    fd: c_int,
    bytes: usize,
    interest: Interest,
    call: impl Fn() -> isize,
) -> Option<ssize_t> {
    if !park::may_switch() {
        return None;
    }
    let place = table::place(fd)
        .filter(|place| place.is_pipe(fd) || place.is_counter(fd) && bytes >= COUNTER)?;
    let attempt = || when_ready(fd, interest, &call);
    // A call that does not wait is the kernel's: it may know better than the look, or refuse.
    let result = repeat(fd, place, interest, true, attempt, |_| false).unwrap_or_else(&call);
    Some(returned(result))
}
