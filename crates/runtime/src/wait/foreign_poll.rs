//! The wait of a foreign kernel thread for a descriptor.

use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

use crate::idle::interest::Interest;

/// Waits on a foreign kernel thread, with poll(2).
pub(super) fn poll(fd: RawFd, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    let events = match interest {
        Interest::Read => libc::POLLIN | libc::POLLRDHUP,
        Interest::Write => libc::POLLOUT,
    };
    loop {
        // poll(2) ignores negative descriptors.
        let call = crate::microprocess::foreign_thread::cancel_descriptor().unwrap_or(-1);
        // After the above: a request that arrived before the descriptor existed is observed here.
        crate::wait::cancel::point();
        let ts = deadline
            .map(|d| crate::process::futex::timespec(d.saturating_duration_since(Instant::now())));
        let ts = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
        let mut p = [
            libc::pollfd { fd, events, revents: 0 },
            libc::pollfd { fd: call, events: libc::POLLIN, revents: 0 },
        ];
        // SAFETY: two live pollfds, a null or live timespec, no signal mask.
        match unsafe { kumihimo_arch::kernel::ppoll(p.as_mut_ptr(), 2, ts) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            // The cancel descriptor is ready: cancelled, or to be cancelled once it is no longer
            // masked.
            n if n > 0 && p[0].revents == 0 => {}
            n if n > 0 => return Ok(()),
            _ => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
}
