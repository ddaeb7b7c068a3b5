//! What all sockets share: the attempt, the wait, the options.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kumihimo_resource::id::Id;
use kumihimo_runtime::cancel;
use kumihimo_runtime::park::{self, Waiter};
use kumihimo_runtime::readiness::{Interest, Seen, Source};
use kumihimo_runtime::wrapped::{self, Address, Message, SystemCall};

use crate::handles::Handle;

/// Shared by a socket and its clones, as the kernel shares them. Plain values: Relaxed.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Nanoseconds; 0: none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    nonblocking: AtomicBool,
    /// The last sender: see [`Options::is_shared_by_senders`].
    sender: AtomicU64,
}

impl Options {
    fn timeout(&self, interest: Interest) -> &AtomicU64 {
        match interest {
            Interest::Read => &self.read_timeout,
            Interest::Write => &self.write_timeout,
        }
    }

    pub(crate) fn set_timeout(&self, interest: Interest, timeout: Option<Duration>) {
        let nanos = timeout.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.timeout(interest).store(nanos, Ordering::Relaxed);
    }

    pub(crate) fn get_timeout(&self, interest: Interest) -> Option<Duration> {
        match self.timeout(interest).load(Ordering::Relaxed) {
            0 => None,
            n => Some(Duration::from_nanos(n)),
        }
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Whether another microprocess than the caller was the last to send: what both send may become
    /// one system call.
    fn is_shared_by_senders(&self) -> bool {
        let me = if park::on_vp() { Waiter::mark() } else { 0 };
        let last = self.sender.load(Ordering::Relaxed);
        if last != me {
            self.sender.store(me, Ordering::Relaxed);
        }
        last != me && last != 0 && me != 0
    }

    pub(crate) fn nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }
}

/// The limit on one call's wait, and its origin.
pub(crate) struct Limit {
    at: Option<Instant>,
    /// The earlier one is the scope's deadline, not the socket's timeout.
    scope: bool,
}

impl Limit {
    pub(crate) fn new(timeout: Option<Duration>) -> Limit {
        // A timeout beyond the clock's range is none.
        let own = timeout.and_then(|t| Instant::now().checked_add(t));
        match (own, cancel::deadline()) {
            (own, None) => Limit { at: own, scope: false },
            (Some(own), Some(scope)) if own <= scope => Limit { at: Some(own), scope: false },
            (_, Some(scope)) => Limit { at: Some(scope), scope: true },
        }
    }

    /// Waits. `exceeded` is the error for the socket's own timeout.
    pub(crate) fn wait(
        &self,
        source: &Source,
        interest: Interest,
        seen: Seen,
        exceeded: fn() -> io::Error,
    ) -> io::Result<()> {
        source.wait(interest, seen, self.at).map_err(|e| match e.kind() {
            ErrorKind::TimedOut if self.scope => Limit::scope_passed(),
            ErrorKind::TimedOut => exceeded(),
            _ => e,
        })
    }

    /// How long is left, for a system call that waits by itself.
    pub(crate) fn remaining(&self) -> io::Result<Option<Duration>> {
        match self.at.map(|at| at.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(Limit::scope_passed()),
            left => Ok(left),
        }
    }

    pub(crate) fn scope_passed() -> io::Error {
        io::Error::new(ErrorKind::TimedOut, "the deadline of an enclosing scope has passed")
    }
}

/// What an attempt that succeeded tells about the next one.
pub(crate) struct Done<T> {
    pub(crate) value: T,
    /// The kernel's buffer is now empty (reading) or full (writing).
    pub(crate) dry: bool,
}

/// A std socket with its readiness. The source goes first: it must leave its epoll while the
/// descriptor is still open.
pub(crate) struct Socket<S> {
    source: Source,
    pub(crate) options: Arc<Options>,
    handle: Handle,
    pub(crate) inner: S,
}

impl<S: AsFd> Socket<S> {
    pub(crate) fn new(inner: S, options: Arc<Options>) -> Socket<S> {
        let source = Source::new(inner.as_fd().as_raw_fd());
        Socket::with_source(inner, options, source)
    }

    /// `source` must be that of `inner`'s descriptor.
    pub(crate) fn with_source(inner: S, options: Arc<Options>, source: Source) -> Socket<S> {
        let handle = Handle::socket(inner.as_fd().as_raw_fd());
        Socket { source, options, handle, inner }
    }

    /// Its id in the resource table.
    pub(crate) fn resource(&self) -> Option<Id> {
        self.handle.id()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.inner.as_fd().as_raw_fd()
    }

    /// Makes `attempt`, which never waits, until it says something other than `WouldBlock` or
    /// `Interrupted`.
    pub(crate) fn attempt<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<Done<T>>,
    ) -> io::Result<T> {
        cancel::point();
        let nonblocking = self.options.nonblocking();
        let mut limit = None;
        // Asked before everything else: whatever comes from here on ends the wait.
        let mut seen = self.source.seen(interest);
        // What an attempt would say may be known already.
        let mut skip = !nonblocking && !self.source.likely_ready(interest);
        loop {
            if !skip {
                match attempt(self.inner.as_fd()) {
                    Ok(done) => {
                        if done.dry {
                            self.source.drained(interest, seen);
                        }
                        return Ok(done.value);
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                    Err(e) if e.kind() == ErrorKind::WouldBlock && !nonblocking => {}
                    Err(e) => return Err(e),
                }
            }
            limit.get_or_insert_with(|| Limit::new(self.options.get_timeout(interest))).wait(
                &self.source,
                interest,
                seen,
                || io::Error::from_raw_os_error(libc::EAGAIN),
            )?;
            seen = self.source.seen(interest);
            skip = false;
        }
    }
}

/// Protocol family, which decides how a short read is interpreted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Tcp,
    /// A read also ends at a message that carries descriptors or credentials; `MSG_CTRUNC` shows
    /// that one was there.
    Unix,
}

/// Both take `MSG_DONTWAIT`, so the descriptor itself need not be nonblocking.
impl<S: AsFd> Socket<S> {
    pub(crate) fn recv(&self, family: Family, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if family == Family::Unix {
            return self.recv_vectored(family, &mut [IoSliceMut::new(buf)]);
        }
        self.attempt(Interest::Read, |fd| {
            let n = wrapped::call(SystemCall::Recv { socket: fd, into: buf, flags: 0 }, false)?;
            // 0 is the end of the stream, which stays and makes no further edge.
            Ok(Done { value: n, dry: n != 0 && n < buf.len() })
        })
    }

    pub(crate) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.attempt(Interest::Read, |fd| {
            let n =
                wrapped::alone(SystemCall::Recv { socket: fd, into: buf, flags: libc::MSG_PEEK })?;
            // Whatever was seen is still there.
            Ok(Done { value: n, dry: false })
        })
    }

    pub(crate) fn recv_vectored(
        &self,
        family: Family,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let room: usize = bufs.iter().take(MAX_IOV).map(|b| b.len()).sum();
        if room == 0 {
            return Ok(0);
        }
        self.attempt(Interest::Read, |fd| {
            let message = Message::new(bufs);
            let n =
                wrapped::call(SystemCall::RecvMessage { socket: fd, message: &message }, false)?;
            let whole = family == Family::Tcp || !message.lost_control();
            Ok(Done { value: n, dry: whole && n != 0 && n < room })
        })
    }

    /// On a stream: what several microprocesses send may leave in one system call.
    pub(crate) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let shared = self.options.is_shared_by_senders();
        self.attempt(Interest::Write, |fd| {
            let n = wrapped::call(SystemCall::Send { socket: fd, from: buf }, shared)?;
            Ok(Done { value: n, dry: n < buf.len() })
        })
    }

    /// Over UDP: what several microprocesses send to one peer may leave in one system call.
    pub(crate) fn send_datagram(&self, to: Option<&Address>, buf: &[u8]) -> io::Result<usize> {
        let shared = self.options.is_shared_by_senders();
        self.attempt(Interest::Write, |fd| {
            let value =
                wrapped::call(SystemCall::SendDatagram { socket: fd, to, from: buf }, shared)?;
            Ok(Done { value, dry: false })
        })
    }

    pub(crate) fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(MAX_IOV)];
        let all: usize = bufs.iter().map(|b| b.len()).sum();
        let shared = self.options.is_shared_by_senders();
        self.attempt(Interest::Write, |fd| {
            let n = wrapped::call(SystemCall::SendVectored { socket: fd, from: bufs }, shared)?;
            Ok(Done { value: n, dry: n < all })
        })
    }
}

/// The kernel refuses more (UIO_MAXIOV).
const MAX_IOV: usize = 1024;

/// Whether O_NONBLOCK is set on a socket that comes from elsewhere.
pub(crate) fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: F_GETFL takes no pointer; on error (-1) the answer is meaningless, but a borrowed
    // descriptor is open.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    flags != -1 && flags & libc::O_NONBLOCK != 0
}

/// Whether nothing will be received any more (`shutdown`), on a datagram socket.
pub(crate) fn is_shut_down(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one live pollfd; does not wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLRDHUP != 0 }
}

/// Lengthens the backlog to what the machine allows; std asks for 128.
pub(crate) fn longest_backlog(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointer. Calling listen again on a listening socket only changes the backlog; the
    // kernel caps it.
    match unsafe { libc::listen(fd.as_raw_fd(), libc::c_int::MAX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
