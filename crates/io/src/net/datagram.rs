//! Receiving and sending datagrams.
//!
//! `O_NONBLOCK` is kept set on the open file, so that std's own calls never wait.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use kumihimo_runtime::readiness::Interest;
use kumihimo_runtime::syscall_batch::{self, Address, SystemCall};

use super::socket::{Done, Socket};

impl<S: AsFd> Socket<S> {
    /// Receives by `attempt`, one of std's calls. After a shutdown the result is `nothing`.
    pub(super) fn receive<T: Clone>(
        &self,
        nothing: T,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.attempt(Interest::Read, |fd| {
            let value = match attempt() {
                // After a shutdown a blocking call would return 0; a nonblocking one still fails
                // with `WouldBlock`.
                Err(e)
                    if e.kind() == ErrorKind::WouldBlock
                        && !self.options.nonblocking()
                        && is_shut_down(fd) =>
                {
                    nothing.clone()
                }
                other => other?,
            };
            // The length of a datagram does not show whether another one is queued.
            Ok(Done { value, dry: false })
        })
    }

    /// Sends over UDP. Datagrams of several microprocesses to one peer may leave in one system
    /// call.
    pub(super) fn send_datagram(&self, to: Option<&Address>, buf: &[u8]) -> io::Result<usize> {
        let shared = self.options.is_shared_by_senders();
        self.attempt(Interest::Write, |fd| {
            let value = syscall_batch::call(
                SystemCall::SendDatagram { socket: fd, to, from: buf },
                shared,
            )?;
            Ok(Done { value, dry: false })
        })
    }
}

/// Whether the receiving direction of a datagram socket was shut down.
fn is_shut_down(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one live pollfd; a timeout of 0 does not wait.
    unsafe {
        kumihimo_arch::kernel::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLRDHUP != 0
    }
}
