//! TCP streams and listeners.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_resource::id::Id;
use kumihimo_runtime::cancel;
use kumihimo_runtime::readiness::{Interest, Source};

use super::address::{bind_each, connect, each, resolve};
use super::halves::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::socket::{Options, Socket, longest_backlog};
use super::stream::{Family, StdStream};
use crate::fd_traits::descriptor_traits;
use crate::limit::Limit;

/// A TCP connection, as [`std::net::TcpStream`]. A read blocks the microprocess until the first
/// byte arrives, a write until the kernel's buffer has room.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{TcpListener, TcpStream};
/// use kumihimo::thread;
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// let client = thread::spawn(move || TcpStream::connect(addr)?.write_all(b"ping"));
///
/// let (mut stream, _peer) = listener.accept()?;
/// let mut text = String::new();
/// stream.read_to_string(&mut text)?;
/// assert_eq!(text, "ping");
/// client.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream(Socket<std::net::TcpStream>);

descriptor_traits!(TcpStream, std::net::TcpStream);

impl From<std::net::TcpStream> for TcpStream {
    /// Takes over the timeouts and the nonblocking mode of the stream.
    fn from(stream: std::net::TcpStream) -> Self {
        let options = Options::adopt(&stream, stream.read_timeout(), stream.write_timeout());
        TcpStream(Socket::new(stream, Arc::new(options)))
    }
}

impl From<TcpStream> for std::net::TcpStream {
    fn from(stream: TcpStream) -> Self {
        stream.0.inner
    }
}

impl StdStream for std::net::TcpStream {
    const FAMILY: Family = Family::Tcp;
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.recv_vectored(bufs)
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.recv_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TcpStream {
    /// Connects to the first address of `addr` that answers. Blocks the microprocess until the
    /// connection is established. A cancellation point.
    ///
    /// # Errors
    /// That of the last address tried; `InvalidInput` if there is none; `TimedOut` also when the
    /// deadline of a scope has passed.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        cancel::point();
        let addrs = resolve(addr)?;
        let limit = Limit::new(None);
        each(&addrs, |a| TcpStream::connect_within(a, &limit))
    }

    /// Connects to `addr`. Blocks the microprocess until the connection is established, for
    /// `timeout` at most. A cancellation point.
    ///
    /// # Errors
    /// `InvalidInput` if `timeout` is zero; `TimedOut`.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a 0 duration timeout",
            ));
        }
        cancel::point();
        TcpStream::connect_within(addr, &Limit::new(Some(timeout)))
    }

    fn connect_within(addr: &SocketAddr, limit: &Limit) -> io::Result<TcpStream> {
        Ok(TcpStream::connected(connect(addr, limit)?))
    }

    /// Its readiness, for futures.
    pub(crate) fn readiness(&self) -> &Source {
        self.0.source()
    }

    pub(super) fn connected((stream, source): (std::net::TcpStream, Source)) -> TcpStream {
        TcpStream(Socket::with_source(stream, Arc::default(), source))
    }

    /// Whether small writes go out at once (`TCP_NODELAY`) instead of waiting for more.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.inner.set_nodelay(nodelay)
    }

    /// The state of `TCP_NODELAY`.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.inner.nodelay()
    }

    /// Time to live of outgoing packets, in hops.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.inner.set_ttl(ttl)
    }

    /// Time to live of outgoing packets, in hops.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.inner.ttl()
    }

    /// Makes a second handle to the same stream, which shares its options. Readers and writers may
    /// use both at once.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        self.0.try_clone().map(TcpStream)
    }

    /// Address of this end.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.inner.local_addr()
    }

    /// Address of the other end.
    ///
    /// # Errors
    /// `NotConnected` if the stream is not, or no longer, connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.inner.peer_addr()
    }

    /// Ends one direction or both, for all handles. A waiting read returns 0, a waiting write
    /// fails.
    ///
    /// # Errors
    /// `NotConnected` if the stream is not, or no longer, connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.inner.shutdown(how)
    }

    /// Reads without consuming: the next read returns the same bytes. Blocks the microprocess until
    /// the first byte arrives, as a read does.
    ///
    /// # Errors
    /// As `read`.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buf)
    }

    /// Sets how long a read may wait before it fails with `WouldBlock`. `None`, the default, sets
    /// no limit.
    ///
    /// # Errors
    /// `InvalidInput` if the duration is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        // The kernel's copy is for code that takes the descriptor out: calls of this crate never
        // wait in the kernel.
        self.0.inner.set_read_timeout(timeout)?;
        self.0.options.set_timeout(Interest::Read, timeout);
        Ok(())
    }

    /// Sets how long a write may wait before it fails with `WouldBlock`. `None`, the default, sets
    /// no limit.
    ///
    /// # Errors
    /// `InvalidInput` if the duration is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.inner.set_write_timeout(timeout)?;
        self.0.options.set_timeout(Interest::Write, timeout);
        Ok(())
    }

    /// The timeout of reads.
    ///
    /// # Errors
    /// None today; the signature is std's.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.options.get_timeout(Interest::Read))
    }

    /// The timeout of writes.
    ///
    /// # Errors
    /// None today; the signature is std's.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.options.get_timeout(Interest::Write))
    }

    /// Sets whether calls that would wait fail with `WouldBlock` instead, for this handle and its
    /// clones.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.inner.set_nonblocking(nonblocking)?;
        self.0.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Takes the pending error of the socket (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.inner.take_error()
    }

    /// Lends out the two directions, for example to two microprocesses of a scope.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    /// use kumihimo::thread;
    /// use std::io::{Read, Write};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut peer, _) = listener.accept()?;
    ///
    /// let (mut reader, mut writer) = stream.split();
    /// let (mut received, mut sent) = ([0; 5], [0; 5]);
    /// thread::scope(|s| {
    ///     let writes = s.spawn(move || writer.write_all(b"hello"));
    ///     peer.write_all(b"world")?;
    ///     peer.read_exact(&mut sent)?;
    ///     reader.read_exact(&mut received)?;
    ///     writes.join().unwrap()
    /// })?;
    /// assert_eq!((&sent, &received), (b"hello", b"world"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn split(&self) -> (ReadHalf<'_, TcpStream>, WriteHalf<'_, TcpStream>) {
        halves::borrowed(self)
    }

    /// Splits the stream into its two directions. Dropping the writing half shuts down writing; the
    /// descriptor is closed when both are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    /// use kumihimo::thread;
    /// use std::io::{Read, Write};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut peer, _) = listener.accept()?;
    ///
    /// let (mut reader, mut writer) = stream.into_split();
    /// // The closure drops the writing half: the peer reads to the end.
    /// let sender = thread::spawn(move || writer.write_all(b"question"));
    /// let mut question = String::new();
    /// peer.read_to_string(&mut question)?;
    /// assert_eq!(question, "question");
    ///
    /// // The other direction is still open.
    /// peer.write_all(b"answer")?;
    /// let mut answer = [0; 6];
    /// reader.read_exact(&mut answer)?;
    /// assert_eq!(&answer, b"answer");
    /// sender.join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf<TcpStream>, OwnedWriteHalf<TcpStream>) {
        halves::owned(self, |stream| stream.shutdown(Shutdown::Write))
    }

    /// ID of this handle in the resource table, of kind `socket`. `None` if the table was full when
    /// the handle was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    /// use kumihimo::resource::{Kind, table};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let id = stream.resource().expect("the table has room");
    /// assert_eq!(id.kind(), Kind::SOCKET);
    ///
    /// drop(stream);
    /// assert!(table().read(id, &mut Vec::new()).is_err(), "the id is stale");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }
}

/// A TCP listener, as [`std::net::TcpListener`].
///
/// # Examples
///
/// ```
/// use kumihimo::net::{TcpListener, TcpStream};
/// use kumihimo::thread;
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// let server = thread::spawn(move || {
///     let (mut stream, _peer) = listener.accept()?;
///     stream.write_all(b"welcome")
/// });
///
/// let mut greeting = String::new();
/// TcpStream::connect(addr)?.read_to_string(&mut greeting)?;
/// assert_eq!(greeting, "welcome");
/// server.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener(Socket<std::net::TcpListener>);

descriptor_traits!(TcpListener, std::net::TcpListener);

impl From<std::net::TcpListener> for TcpListener {
    /// Sets `O_NONBLOCK` on the open file; its former state decides whether `accept` waits.
    fn from(listener: std::net::TcpListener) -> Self {
        let options = Options::adopt(&listener, Ok(None), Ok(None));
        TcpListener(Socket::kept_nonblocking(listener, options))
    }
}

impl From<TcpListener> for std::net::TcpListener {
    /// Gives `O_NONBLOCK` the state that `set_nonblocking` asked for. Clones must not wait in
    /// `accept` after that.
    fn from(listener: TcpListener) -> Self {
        listener.0.into_std()
    }
}

impl TcpListener {
    /// Listens on the first address of `addr` that can be bound; port 0 lets the kernel choose.
    /// Sets `SO_REUSEADDR`, as std does. Blocks the microprocess only while a host name is
    /// resolved.
    ///
    /// # Errors
    /// That of the last address tried, naming it; `InvalidInput` if there is none.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let addrs = resolve(addr)?;
        let listener = bind_each(&addrs, |a| std::net::TcpListener::bind(a))?;
        longest_backlog(listener.as_fd())?;
        Ok(TcpListener::from(listener))
    }

    /// Time to live of outgoing packets of accepted connections, in hops.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.inner.set_ttl(ttl)
    }

    /// Time to live of outgoing packets of accepted connections, in hops.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.inner.ttl()
    }

    /// Makes a second handle to the same listener. Several threads may wait in `accept` at once.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        self.0.try_clone().map(TcpListener)
    }

    /// The address that the listener is bound to.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.inner.local_addr()
    }

    /// Accepts the next connection. Blocks the microprocess until there is one. A cancellation
    /// point.
    ///
    /// # Errors
    /// No descriptor left (`EMFILE`, `ENFILE`): the connection stays in the backlog, and a later
    /// call accepts it. `WouldBlock` after `set_nonblocking(true)`; `TimedOut` when the deadline of
    /// a scope has passed.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, addr) = self.0.accept(std::net::TcpListener::accept)?;
        Ok((TcpStream(stream), addr))
    }

    /// An endless iterator over `accept`. `next` blocks the microprocess until there is a
    /// connection.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Sets whether `accept` fails with `WouldBlock` instead of waiting, for this handle and its
    /// clones.
    ///
    /// # Errors
    /// None today; the signature is std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Takes the pending error of the socket (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.inner.take_error()
    }

    /// ID of this handle in the resource table, of kind `socket`. `None` if the table was full when
    /// the handle was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::TcpListener;
    /// use kumihimo::resource::Kind;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let id = listener.resource().expect("the table has room");
    /// assert_eq!(id.kind(), Kind::SOCKET);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }
}

/// Iterator over incoming connections; made by `incoming`. Never ends. `next` blocks the
/// microprocess until there is a connection.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// let clients = [TcpStream::connect(addr)?, TcpStream::connect(addr)?];
///
/// for (client, stream) in clients.iter().zip(listener.incoming()) {
///     assert_eq!(stream?.peer_addr()?, client.local_addr()?);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "iterators are lazy and do nothing unless consumed"]
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl FusedIterator for Incoming<'_> {}
