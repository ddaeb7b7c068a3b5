//! Readiness of descriptors.
use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, a connection to accept, end of file or an error.
    Read,
    /// Room, a finished connect or an error.
    Write,
}

/// Readiness of one descriptor.
#[derive(Debug)]
pub struct Source {
    fd: RawFd,
}

impl Source {
    /// No system call: the descriptor is registered at the first wait.
    pub fn new(fd: RawFd) -> Source {
        Source { fd }
    }

    /// Blocks the caller until the descriptor may be ready. Call it after EAGAIN. Cancellation point.
    pub fn wait(&self, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
        poll(self.fd, interest, deadline)
    }

    /// The caller saw a short read or write: the next attempt would say EAGAIN unless an edge arrives first.
    pub fn drained(&self, _interest: Interest) {}

    /// False after [`drained`](Source::drained) until the next edge: skip the attempt and wait.
    pub fn likely_ready(&self, _interest: Interest) -> bool {
        true
    }
}

/// The way of a foreign kernel thread: poll(2).
fn poll(fd: RawFd, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    let events = match interest {
        Interest::Read => libc::POLLIN | libc::POLLRDHUP,
        Interest::Write => libc::POLLOUT,
    };
    loop {
        let ts = deadline.map(|d| crate::futex::timespec(d.saturating_duration_since(Instant::now())));
        let ts = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
        let mut p = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one live pollfd, a null or live timespec, no signal mask.
        match unsafe { libc::ppoll(&mut p, 1, ts, std::ptr::null()) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
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
