//! Streams as futures use them: calls that return `Pending` instead of waiting.
//!
//! `kumihimo-futures` builds its adapters on this module; `kumihimo` does not export it. Timeouts
//! and the nonblocking mode of a stream do not count here. A call makes its system call at once,
//! and never waits for a batch: a poll must not suspend its caller.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Poll, Waker};

use kumihimo_runtime::readiness::{FuturePlace, Interest, Source, WakerKind};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use crate::attempt::{self, Outcome};
use crate::net::{TcpStream, UnixStream};

/// The kernel refuses longer vectors (UIO_MAXIOV).
const MAX_IOV: usize = 1024;

/// A connected stream that futures can poll: `TcpStream` and `UnixStream`.
///
/// # Examples
///
/// ```
/// use futures_lite::AsyncReadExt;
/// use kumihimo::future::block_on;
/// use kumihimo::futures::{Polled, PolledStream};
/// use kumihimo::net::UnixStream;
/// use std::io::{self, Write};
///
/// fn first_byte(stream: impl PolledStream) -> io::Result<u8> {
///     let mut byte = [0];
///     block_on(Polled::new(stream).read_exact(&mut byte))?;
///     Ok(byte[0])
/// }
///
/// let (near, mut far) = UnixStream::pair()?;
/// far.write_all(b"x")?;
/// assert_eq!(first_byte(near)?, b'x');
/// # Ok::<(), io::Error>(())
/// ```
pub trait PolledStream: sealed::Stream {
    /// Ends one direction or both.
    ///
    /// # Errors
    /// As shutdown(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::futures::PolledStream;
    /// use kumihimo::net::UnixStream;
    /// use std::io::Read;
    /// use std::net::Shutdown;
    ///
    /// fn end(stream: &impl PolledStream) -> std::io::Result<()> {
    ///     stream.shut_down(Shutdown::Write)
    /// }
    ///
    /// let (near, mut far) = UnixStream::pair()?;
    /// end(&near)?;
    /// assert_eq!(far.read(&mut [0; 8])?, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn shut_down(&self, how: Shutdown) -> io::Result<()>;
}

pub(crate) mod sealed {
    use super::{BorrowedFd, Source};

    /// A stream with its readiness.
    pub trait Stream {
        /// Whether a short read means that the socket is empty.
        const SHORT_READ_DRAINS: bool;

        fn source(&self) -> &Source;

        fn descriptor(&self) -> BorrowedFd<'_>;
    }
}

macro_rules! polled {
    ($stream:ty, $drains:expr) => {
        impl sealed::Stream for $stream {
            const SHORT_READ_DRAINS: bool = $drains;

            fn source(&self) -> &Source {
                self.readiness()
            }

            fn descriptor(&self) -> BorrowedFd<'_> {
                self.as_fd()
            }
        }

        impl PolledStream for $stream {
            fn shut_down(&self, how: Shutdown) -> io::Result<()> {
                self.shutdown(how)
            }
        }
    };
}

polled!(TcpStream, true);
// A read also ends at a message that carries descriptors (unix(7)).
polled!(UnixStream, false);

/// The future's side of one call: its place, its waker, and how that is called.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Its place among the waiters of the stream.
    pub place: &'a FuturePlace,
    /// Its waker.
    pub waker: &'a Waker,
    /// How the waker is called.
    pub kind: WakerKind,
}

/// Receives into `buf`; 0 at the end of the stream, and if `buf` is empty.
///
/// # Errors
/// As recv(2), and as epoll_ctl(2).
pub fn poll_read(
    stream: &impl PolledStream,
    caller: Caller<'_>,
    buf: &mut [u8],
) -> Poll<io::Result<usize>> {
    let room = buf.len();
    poll_receive(stream, caller, room, |fd| recv(fd, &mut *buf, RecvFlags::DONTWAIT).map(|r| r.0))
}

/// As [`poll_read`], into memory that need not be initialised. The result is the number of bytes at
/// its start that are initialised afterwards.
///
/// # Errors
/// As [`poll_read`].
pub fn poll_read_uninit(
    stream: &impl PolledStream,
    caller: Caller<'_>,
    buf: &mut [MaybeUninit<u8>],
) -> Poll<io::Result<usize>> {
    let room = buf.len();
    poll_receive(stream, caller, room, |fd| {
        recv(fd, &mut *buf, RecvFlags::DONTWAIT).map(|((read, _), _)| read.len())
    })
}

fn poll_receive<S: PolledStream>(
    stream: &S,
    caller: Caller<'_>,
    room: usize,
    mut receive: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    if room == 0 {
        return Poll::Ready(Ok(0));
    }
    poll_call(stream, caller, Interest::Read, || match receive(stream.descriptor()) {
        // 0 is the end of the stream, which is permanent and causes no further edge.
        Ok(n) if n != 0 && n < room && S::SHORT_READ_DRAINS => Outcome::Drained(n),
        other => ended(other),
    })
}

/// Sends from `buf`.
///
/// # Errors
/// As send(2), and as epoll_ctl(2).
pub fn poll_write(
    stream: &impl PolledStream,
    caller: Caller<'_>,
    buf: &[u8],
) -> Poll<io::Result<usize>> {
    poll_send(stream, caller, buf.len(), |fd| {
        send(fd, buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    })
}

/// Sends from several buffers in order.
///
/// # Errors
/// As [`poll_write`].
pub fn poll_write_vectored(
    stream: &impl PolledStream,
    caller: Caller<'_>,
    bufs: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let bufs = &bufs[..bufs.len().min(MAX_IOV)];
    poll_send(stream, caller, bufs.iter().map(|buf| buf.len()).sum(), |fd| {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(fd, bufs, &mut SendAncillaryBuffer::default(), flags)
    })
}

fn poll_send(
    stream: &impl PolledStream,
    caller: Caller<'_>,
    all: usize,
    mut send: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    poll_call(stream, caller, Interest::Write, || match send(stream.descriptor()) {
        Ok(n) if n < all => Outcome::Drained(n),
        other => ended(other),
    })
}

fn ended(result: rustix::io::Result<usize>) -> Outcome<usize> {
    match result.map_err(io::Error::from) {
        Err(e) if e.kind() == ErrorKind::Interrupted => Outcome::Repeat,
        Err(e) if e.kind() == ErrorKind::WouldBlock => Outcome::NotReady,
        other => Outcome::Ended(other),
    }
}

fn poll_call(
    stream: &impl PolledStream,
    caller: Caller<'_>,
    interest: Interest,
    call: impl FnMut() -> Outcome<usize>,
) -> Poll<io::Result<usize>> {
    let Caller { place, waker, kind } = caller;
    let source = stream.source();
    attempt::poll_attempt(source, interest, call, |seen| {
        source.poll_wait(interest, seen, place, waker, kind)
    })
}

/// Removes the wakers of a place.
pub fn withdraw(stream: &impl PolledStream, place: &FuturePlace) {
    for interest in [Interest::Read, Interest::Write] {
        stream.source().withdraw(interest, place);
    }
}
