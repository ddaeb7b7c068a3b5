//! Reading from and writing to connected streams.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use kumihimo_runtime::readiness::Interest;
use kumihimo_runtime::syscall_batch::{self, Message, SystemCall};

use super::socket::{Done, Socket};

/// The kernel refuses longer vectors (UIO_MAXIOV).
const MAX_IOV: usize = 1024;

/// Protocol family, which decides how a short read is interpreted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// A short read has emptied the socket.
    Tcp,
    /// A read also ends at a message that carries descriptors or credentials; `MSG_CTRUNC` reports
    /// that there was one (unix(7), recvmsg(2)).
    Unix,
}

/// One of std's stream types.
pub(super) trait StdStream: AsFd {
    /// Its protocol family.
    const FAMILY: Family;
}

/// All calls take `MSG_DONTWAIT`, so the descriptor itself need not be nonblocking.
impl<S: StdStream> Socket<S> {
    /// Receives into `buf`, waiting for the first byte; 0 at the end of the stream.
    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        // A read of nothing takes a message, but waits for no byte.
        if buf.is_empty() && !self.options.has_messages() {
            return Ok(0);
        }
        if S::FAMILY == Family::Unix {
            return self.recv_vectored(&mut [IoSliceMut::new(buf)]);
        }
        self.attempt(Interest::Read, |fd| {
            let n =
                syscall_batch::call(SystemCall::Recv { socket: fd, into: buf, flags: 0 }, false)?;
            Ok(Done { value: n, dry: self.is_dry(n, buf.len()) })
        })
    }

    /// Whether a read of `n` bytes into `room` has emptied the socket. 0 is the end of the stream,
    /// which is permanent and causes no further edge.
    fn is_dry(&self, n: usize, room: usize) -> bool {
        n != 0 && n < room && !self.options.has_messages()
    }

    /// Receives without consuming, waiting for the first byte.
    pub(super) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.attempt(Interest::Read, |fd| {
            let n = syscall_batch::alone(SystemCall::Recv {
                socket: fd,
                into: buf,
                flags: libc::MSG_PEEK,
            })?;
            // The bytes stay in the socket, so it is not empty.
            Ok(Done { value: n, dry: false })
        })
    }

    /// Receives into several buffers in order.
    pub(super) fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let room: usize = bufs.iter().take(MAX_IOV).map(|b| b.len()).sum();
        if room == 0 && !self.options.has_messages() {
            return Ok(0);
        }
        self.attempt(Interest::Read, |fd| {
            let message = Message::new(bufs);
            let n = syscall_batch::call(
                SystemCall::RecvMessage { socket: fd, message: &message },
                false,
            )?;
            let whole = S::FAMILY == Family::Tcp || !message.lost_control();
            Ok(Done { value: n, dry: whole && self.is_dry(n, room) })
        })
    }

    /// Sends from `buf`, waiting for room. Data from several microprocesses may leave in one system
    /// call.
    pub(super) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let shared = self.options.is_shared_by_senders();
        self.attempt(Interest::Write, |fd| {
            let n = self.send_together(SystemCall::Send { socket: fd, from: buf }, shared)?;
            Ok(Done { value: n, dry: n < buf.len() })
        })
    }

    /// Sends from several buffers in order.
    pub(super) fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(MAX_IOV)];
        let all: usize = bufs.iter().map(|b| b.len()).sum();
        let shared = self.options.is_shared_by_senders();
        self.attempt(Interest::Write, |fd| {
            let n =
                self.send_together(SystemCall::SendVectored { socket: fd, from: bufs }, shared)?;
            Ok(Done { value: n, dry: n < all })
        })
    }

    /// Sends in a batch, unless that could merge two messages into one.
    fn send_together(&self, send: SystemCall<'_>, shared: bool) -> io::Result<usize> {
        if self.options.has_messages() {
            return syscall_batch::alone(send);
        }
        syscall_batch::call(send, shared)
    }
}
