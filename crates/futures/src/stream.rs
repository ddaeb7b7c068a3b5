//! Streams as futures use them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use kumihimo_io::polled::{self, Caller, PolledStream};
use kumihimo_runtime::future;
use kumihimo_runtime::readiness::{FuturePlace, WakerKind};

use crate::service;

/// A [`TcpStream`](kumihimo_io::net::TcpStream) or [`UnixStream`](kumihimo_io::net::UnixStream) for
/// futures: `futures_io::AsyncRead` and `AsyncWrite`, and with the feature `hyper` hyper's
/// `rt::Read` and `rt::Write`.
///
/// A poll makes one system call, which never waits. If the stream is not ready, the future's waker
/// is entered at the runtime's own readiness: no kernel thread waits for it. As in other crates,
/// one future may wait in each direction at a time; the waker of the last poll is called. Dropping
/// the stream, or taking it out, removes its wakers.
///
/// Timeouts and the nonblocking mode of the stream do not count here. `poll_close` shuts down
/// writing. Blocking calls through [`get_ref`](Polled::get_ref) are allowed; they block the
/// microprocess.
///
/// # Examples
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use kumihimo::futures::Polled;
/// use kumihimo::net::{TcpListener, TcpStream};
/// use kumihimo::{future::block_on, thread};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// let client = thread::spawn(move || {
///     let mut stream = Polled::new(TcpStream::connect(addr)?);
///     block_on(async {
///         stream.write_all(b"ping").await?;
///         stream.close().await
///     })
/// });
///
/// let mut stream = Polled::new(listener.accept()?.0);
/// let mut text = String::new();
/// block_on(stream.read_to_string(&mut text))?;
/// assert_eq!(text, "ping");
/// client.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Polled<S> {
    // Dropped first: it removes the wakers with its readiness.
    stream: S,
    place: FuturePlace,
}

impl<S: PolledStream> Polled<S> {
    /// Wraps a connected stream.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_lite::AsyncWriteExt;
    /// use kumihimo::future::block_on;
    /// use kumihimo::futures::Polled;
    /// use kumihimo::net::UnixStream;
    /// use std::io::Read;
    ///
    /// let (near, mut far) = UnixStream::pair()?;
    /// let mut near = Polled::new(near);
    /// block_on(near.write_all(b"ping"))?;
    /// let mut text = [0; 4];
    /// far.read_exact(&mut text)?;
    /// assert_eq!(&text, b"ping");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(stream: S) -> Polled<S> {
        Polled { stream, place: FuturePlace::new() }
    }

    /// Returns the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::futures::Polled;
    /// use kumihimo::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = Polled::new(TcpStream::connect(listener.local_addr()?)?);
    /// stream.get_ref().set_nodelay(true)?;
    /// assert_eq!(stream.get_ref().peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Takes the stream out. A future that still waits for it is not woken any more.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_lite::AsyncReadExt;
    /// use kumihimo::future::block_on;
    /// use kumihimo::futures::Polled;
    /// use kumihimo::net::UnixStream;
    /// use std::io::{Read, Write};
    ///
    /// let (near, mut far) = UnixStream::pair()?;
    /// far.write_all(b"first, then the rest")?;
    /// drop(far);
    ///
    /// let mut near = Polled::new(near);
    /// block_on(near.read_exact(&mut [0; 7]))?;
    /// // From here on calls block the microprocess.
    /// let mut rest = String::new();
    /// near.into_inner().read_to_string(&mut rest)?;
    /// assert_eq!(rest, "then the rest");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_inner(self) -> S {
        polled::withdraw(&self.stream, &self.place);
        self.stream
    }

    fn poll(
        &self,
        cx: &Context<'_>,
        call: impl FnOnce(&S, Caller<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let waker = cx.waker();
        let kind = future::kind_of(waker);
        let poll = call(&self.stream, Caller { place: &self.place, waker, kind });
        if poll.is_pending() && kind == WakerKind::Foreign {
            // After the waker was entered: a service that ends now has seen it, or is replaced.
            service::ensure()?;
        }
        poll
    }

    pub(crate) fn receive(&self, cx: &Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream, caller| polled::poll_read(stream, caller, buf))
    }

    #[cfg_attr(not(feature = "hyper"), allow(dead_code))]
    pub(crate) fn receive_uninit(
        &self,
        cx: &Context<'_>,
        buf: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream, caller| polled::poll_read_uninit(stream, caller, buf))
    }

    pub(crate) fn send(&self, cx: &Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream, caller| polled::poll_write(stream, caller, buf))
    }

    pub(crate) fn send_vectored(
        &self,
        cx: &Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream, caller| polled::poll_write_vectored(stream, caller, bufs))
    }

    pub(crate) fn end_writing(&self) -> Poll<io::Result<()>> {
        match self.stream.shut_down(Shutdown::Write) {
            // The peer has closed the connection: nothing is left to end.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}

impl<S> Unpin for Polled<S> {}

impl<S: PolledStream> AsyncRead for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.receive(cx, buf)
    }
}

impl<S: PolledStream> AsyncWrite for Polled<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.send(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.send_vectored(cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end_writing()
    }
}
