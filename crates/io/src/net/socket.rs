//! The part that all sockets share: attempt, wait and options.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_arch::cpu::prefetch;
use kumihimo_resource::id::Id;
use kumihimo_runtime::cancel;
use kumihimo_runtime::park::{self, Waiter};
use kumihimo_runtime::readiness::{Interest, Source};

use crate::attempt::{self, Outcome};
use crate::handles::Handle;
use crate::limit::Limit;

/// Options shared by a socket and its clones, as the kernel shares them. Plain values: Relaxed.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Nanoseconds; 0: none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    nonblocking: AtomicBool,
    /// Whether each send is one message and each read takes one: see [`has_messages`].
    messages: bool,
    /// The last sender: see [`Options::is_shared_by_senders`].
    sender: AtomicU64,
}

impl Options {
    /// The options of a socket that std made: its timeouts, and its nonblocking mode.
    pub(crate) fn adopt(
        socket: &impl AsFd,
        read_timeout: io::Result<Option<Duration>>,
        write_timeout: io::Result<Option<Duration>>,
    ) -> Options {
        let options = Options { messages: has_messages(socket.as_fd()), ..Options::default() };
        options.set_nonblocking(is_nonblocking(socket.as_fd()));
        options.set_timeout(Interest::Read, read_timeout.unwrap_or(None));
        options.set_timeout(Interest::Write, write_timeout.unwrap_or(None));
        options
    }

    /// The options of a connection that was accepted from a socket with these options: blocking,
    /// without timeouts.
    fn accepted(&self) -> Options {
        Options { messages: self.messages, ..Options::default() }
    }

    /// Whether a short read does not mean that the socket is empty, and sends must not be merged.
    pub(super) fn has_messages(&self) -> bool {
        self.messages
    }

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

    /// Whether the last sender was another microprocess than the caller. The data of both may then
    /// leave in one system call.
    pub(super) fn is_shared_by_senders(&self) -> bool {
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

/// Result of a successful attempt.
pub(crate) struct Done<T> {
    pub(crate) value: T,
    /// Whether the kernel's buffer is now empty (reading) or full (writing).
    pub(crate) dry: bool,
}

/// One of std's sockets with its readiness. `source` is dropped first: it must leave its epoll
/// while the descriptor is still open.
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

    /// As [`new`](Socket::new), with an existing `source` of the same descriptor.
    pub(crate) fn with_source(inner: S, options: Arc<Options>, source: Source) -> Socket<S> {
        let handle = Handle::socket(inner.as_fd().as_raw_fd());
        Socket { source, options, handle, inner }
    }

    /// ID in the resource table.
    pub(crate) fn resource(&self) -> Option<Id> {
        self.handle.id()
    }

    /// Its readiness.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.inner.as_fd().as_raw_fd()
    }

    /// Repeats `attempt`, which never waits, until it returns something other than `WouldBlock` or
    /// `Interrupted`; waits for readiness in between. A cancellation point.
    pub(crate) fn attempt<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<Done<T>>,
    ) -> io::Result<T> {
        cancel::point();
        let nonblocking = self.options.nonblocking();
        let mut limit = None;
        attempt::attempt(
            &self.source,
            interest,
            !nonblocking,
            || match attempt(self.inner.as_fd()) {
                Ok(Done { value, dry: true }) => Outcome::Drained(value),
                Ok(Done { value, dry: false }) => Outcome::Ended(Ok(value)),
                Err(e) if e.kind() == ErrorKind::Interrupted => Outcome::Repeat,
                Err(e) if e.kind() == ErrorKind::WouldBlock && !nonblocking => Outcome::NotReady,
                Err(e) => Outcome::Ended(Err(e)),
            },
            |seen| {
                let limit =
                    limit.get_or_insert_with(|| Limit::new(self.options.get_timeout(interest)));
                let waited = limit.wait(&self.source, interest, seen, || {
                    io::Error::from_raw_os_error(libc::EAGAIN)
                });
                // Among thousands of connections the options are cold after a wait, and are read
                // after the system call.
                prefetch(std::ptr::from_ref(&*self.options).cast());
                waited
            },
        )
    }
}

impl<S: AsFd + From<OwnedFd>> Socket<S> {
    /// A second handle to the same open file, with the same options.
    pub(crate) fn try_clone(&self) -> io::Result<Socket<S>> {
        let inner = S::from(self.inner.as_fd().try_clone_to_owned()?);
        Ok(Socket::new(inner, self.options.clone()))
    }
}

/// Sockets that std's own calls serve: `O_NONBLOCK` stays set on the open file.
impl<S: AsFd> Socket<S> {
    /// Sets `O_NONBLOCK` on the open file of `inner`.
    pub(crate) fn kept_nonblocking(inner: S, options: Options) -> Socket<S> {
        set_nonblocking(&inner, true);
        Socket::new(inner, Arc::new(options))
    }

    /// Gives `O_NONBLOCK` the state that the options have, and returns std's socket.
    pub(crate) fn into_std(self) -> S {
        set_nonblocking(&self.inner, self.options.nonblocking());
        self.inner
    }

    /// Waits for a connection by `accept`, std's call.
    pub(crate) fn accept<T: AsFd, A>(
        &self,
        accept: impl Fn(&S) -> io::Result<(T, A)>,
    ) -> io::Result<(Socket<T>, A)> {
        self.attempt(Interest::Read, |_| {
            let (stream, addr) = accept(&self.inner)?;
            // accept4(2) without SOCK_NONBLOCK: the new socket is blocking and has no timeouts.
            let options = Arc::new(self.options.accepted());
            Ok(Done { value: (Socket::new(stream, options), addr), dry: false })
        })
    }
}

fn set_nonblocking(socket: &impl AsFd, on: bool) {
    rustix::io::ioctl_fionbio(socket, on).expect("FIONBIO works on every open socket");
}

/// Whether a socket that this crate did not make is anything but a stream of bytes. std's types
/// accept every descriptor, also that of a `SOCK_SEQPACKET` socket (unix(7)).
fn has_messages(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_type(fd) != Ok(rustix::net::SocketType::STREAM)
}

/// Whether O_NONBLOCK is set on a socket that this crate did not make.
fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: F_GETFL takes no pointer; on error (-1) the answer is meaningless, but a borrowed
    // descriptor is open.
    let flags = unsafe { kumihimo_arch::kernel::fcntl(fd.as_raw_fd(), libc::F_GETFL, 0) };
    flags != -1 && flags & libc::O_NONBLOCK != 0
}

/// Raises the backlog to the machine's limit (`net.core.somaxconn`); std asks for 128.
pub(crate) fn longest_backlog(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointer. Calling listen again on a listening socket only changes the backlog; the
    // kernel caps it.
    match unsafe { libc::listen(fd.as_raw_fd(), libc::c_int::MAX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
