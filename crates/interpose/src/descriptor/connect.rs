//! connect(2) of TCP.
//!
//! connect(2) has no flag that keeps one call from waiting, so the file gets O_NONBLOCK for the
//! length of the call. The socket is not connected then, so no other call waits for it, and the
//! caller is not preempted meanwhile. A connection to a socket of this machine (unix(7)) waits
//! without an event to tell of its end, and is the kernel's, like that of any other family.

use std::ffi::c_int;

use kumihimo_arch::kernel;
use kumihimo_arch::system_call;
use kumihimo_runtime::NoEvents;
use kumihimo_runtime::park;
use kumihimo_runtime::readiness::Interest;
use libc::{sockaddr, socklen_t};

use crate::descriptor::table::{self, Place};
use crate::descriptor::transfer::{AGAIN, repeat};
use crate::descriptor::{pipe, returned};
use crate::real::libc;
use crate::signal::cancel;

const IN_PROGRESS: isize = -(libc::EINPROGRESS as isize);
/// The connection has begun, by an earlier call.
const BEGUN: isize = -(libc::EALREADY as isize);

/// Begins the connection. Returns the kernel's result, or `None` if the program does not want to
/// wait, and the call is to be made as it is.
fn begin(fd: c_int, address: usize, length: socklen_t) -> Option<isize> {
    let _events = NoEvents::new();
    // SAFETY: integers, and the program's own arguments.
    unsafe {
        let flags = kernel::fcntl(fd, libc::F_GETFL, 0);
        if flags < 0 || flags & libc::O_NONBLOCK != 0 {
            return None;
        }
        kernel::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        let arguments = [fd as usize, address, length as usize, 0, 0, 0];
        let mut done = system_call(libc::SYS_connect, arguments);
        if done == IN_PROGRESS {
            // To an address of this machine it is made by now, and this call returns its result.
            done = system_call(libc::SYS_connect, arguments);
        }
        kernel::fcntl(fd, libc::F_SETFL, flags);
        Some(done)
    }
}

/// Waits until the connection that was begun is made, or has failed.
fn finish(fd: c_int, place: &Place, address: usize, length: socklen_t) -> isize {
    // A further call returns the result, and leaves the socket as connected.
    let outcome = || match begin(fd, address, length) {
        Some(BEGUN) => AGAIN,
        done => done.unwrap_or(IN_PROGRESS),
    };
    let attempt = || pipe::when_ready(fd, Interest::Write, outcome);
    match repeat(fd, place, Interest::Write, true, attempt, |_| false) {
        // The time-out for sends has passed (socket(7)), or O_NONBLOCK was set meanwhile.
        Some(AGAIN) | None => IN_PROGRESS,
        Some(done) => done,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    cancel::around(|| {
        let place = if park::may_switch() { table::place(fd) } else { None };
        if let Some(place) = place.filter(|place| place.is_tcp(fd))
            && let at = address.expose_provenance()
            && let Some(begun) = begin(fd, at, length)
        {
            let is_begun = matches!(begun, IN_PROGRESS | BEGUN);
            let done = if is_begun { finish(fd, place, at, length) } else { begun };
            return returned(done) as c_int;
        }
        // SAFETY: the caller's promise.
        unsafe { libc::connect(fd, address, length) }
    })
}
