//! UNIX sockets, as `std::os::unix::net`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::mem::offset_of;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_resource::id::Id;
use kumihimo_runtime::cancel;
use kumihimo_runtime::readiness::{Interest, Source};
use kumihimo_runtime::thread::blocking;

use super::address::{bind_at, connect_raw, stream_socket};
use super::halves::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::socket::{Options, Socket, longest_backlog};
use super::stream::{Family, StdStream};
use crate::descriptor::patient;
use crate::fd_traits::descriptor_traits;
use crate::limit::Limit;

pub use super::unix_datagram::UnixDatagram;
pub use std::os::unix::net::SocketAddr;

/// A connection over a UNIX socket, as [`std::os::unix::net::UnixStream`]. A read blocks the
/// microprocess until the first byte arrives, a write until the kernel's buffer has room.
///
/// # Examples
///
/// ```
/// use kumihimo::net::UnixStream;
/// use kumihimo::thread;
/// use std::io::{Read, Write};
///
/// let (mut one, mut other) = UnixStream::pair()?;
/// let echo = thread::spawn(move || {
///     let mut word = [0; 4];
///     other.read_exact(&mut word)?;
///     other.write_all(&word)
/// });
///
/// one.write_all(b"echo")?;
/// let mut word = String::new();
/// one.read_to_string(&mut word)?;
/// assert_eq!(word, "echo");
/// echo.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream(Socket<std::os::unix::net::UnixStream>);

descriptor_traits!(UnixStream, std::os::unix::net::UnixStream);

impl From<std::os::unix::net::UnixStream> for UnixStream {
    /// Takes over the timeouts and the nonblocking mode of the stream.
    fn from(stream: std::os::unix::net::UnixStream) -> Self {
        let options = Options::adopt(&stream, stream.read_timeout(), stream.write_timeout());
        UnixStream(Socket::new(stream, Arc::new(options)))
    }
}

impl From<UnixStream> for std::os::unix::net::UnixStream {
    fn from(stream: UnixStream) -> Self {
        stream.0.inner
    }
}

impl StdStream for std::os::unix::net::UnixStream {
    const FAMILY: Family = Family::Unix;
}

impl Read for UnixStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.recv_vectored(bufs)
    }
}

impl Read for &UnixStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.recv_vectored(bufs)
    }
}

impl Write for UnixStream {
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

impl Write for &UnixStream {
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

impl UnixStream {
    /// Its readiness, for futures.
    pub(crate) fn readiness(&self) -> &Source {
        self.0.source()
    }

    /// Connects to the socket at `path`. A cancellation point.
    ///
    /// Blocks the microprocess, and a kernel thread, while the listener's backlog is full; see the
    /// [module documentation](super).
    ///
    /// # Errors
    /// As connect(2); `TimedOut` when the deadline of a scope has passed.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Connects to the socket with the address `addr`, as [`connect`](UnixStream::connect) does. It
    /// blocks under the same conditions.
    ///
    /// # Errors
    /// As connect(2); `TimedOut` when the deadline of a scope has passed.
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        cancel::point();
        let fd = stream_socket(libc::AF_UNIX)?;
        let (raw, length) = raw(addr)?;
        let stream = match connect_raw(&fd, &raw, length) {
            // Done or refused at once, as nearly always.
            Ok(()) => std::os::unix::net::UnixStream::from(fd),
            // Backlog full. The kernel queues us only in a connect that waits.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let stream = std::os::unix::net::UnixStream::from(fd);
                let limit = Limit::new(None).remaining()?;
                // A waiting connect is bounded by the send timeout (unix_stream_connect in the
                // kernel).
                stream.set_write_timeout(limit)?;
                stream.set_nonblocking(false)?;
                let fd = stream.into();
                blocking(|| patient(|| connect_raw(&fd, &raw, length))).map_err(|e| {
                    match e.kind() {
                        io::ErrorKind::WouldBlock => Limit::scope_passed(),
                        _ => e,
                    }
                })?;
                let stream = std::os::unix::net::UnixStream::from(fd);
                stream.set_write_timeout(None)?;
                return Ok(UnixStream(Socket::new(stream, Arc::default())));
            }
            Err(e) => return Err(e),
        };
        stream.set_nonblocking(false)?;
        Ok(UnixStream(Socket::new(stream, Arc::default())))
    }

    /// Two connected streams without names.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = std::os::unix::net::UnixStream::pair()?;
        Ok((UnixStream(Socket::new(a, Arc::default())), UnixStream(Socket::new(b, Arc::default()))))
    }

    /// Makes a second handle to the same stream, which shares its options. Readers and writers may
    /// use both at once.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<UnixStream> {
        self.0.try_clone().map(UnixStream)
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixStream;
    /// use std::io::{Read, Write};
    ///
    /// let (mut one, mut other) = UnixStream::pair()?;
    /// one.write_all(b"GET /")?;
    /// let mut method = [0; 3];
    /// assert_eq!(other.peek(&mut method)?, 3);
    /// assert_eq!(&method, b"GET");
    ///
    /// let mut request = [0; 5];
    /// other.read_exact(&mut request)?;
    /// assert_eq!(&request, b"GET /");
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    /// use kumihimo::net::UnixStream;
    /// use kumihimo::thread;
    /// use std::io::{Read, Write};
    ///
    /// let (stream, mut peer) = UnixStream::pair()?;
    /// peer.write_all(b"world")?;
    /// let (mut reader, mut writer) = stream.split();
    /// let mut word = [0; 5];
    /// thread::scope(|s| {
    ///     let writes = s.spawn(move || writer.write_all(b"hello"));
    ///     reader.read_exact(&mut word)?;
    ///     writes.join().unwrap()
    /// })?;
    /// assert_eq!(&word, b"world");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn split(&self) -> (ReadHalf<'_, UnixStream>, WriteHalf<'_, UnixStream>) {
        halves::borrowed(self)
    }

    /// Splits the stream into its two directions. Dropping the writing half shuts down writing; the
    /// descriptor is closed when both are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixStream;
    /// use std::io::{Read, Write};
    ///
    /// let (stream, mut peer) = UnixStream::pair()?;
    /// let (mut reader, mut writer) = stream.into_split();
    /// writer.write_all(b"the last word")?;
    /// drop(writer);
    ///
    /// let mut text = String::new();
    /// peer.read_to_string(&mut text)?;
    /// assert_eq!(text, "the last word");
    /// drop(peer);
    /// assert_eq!(reader.read(&mut [0])?, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf<UnixStream>, OwnedWriteHalf<UnixStream>) {
        halves::owned(self, |stream| stream.shutdown(Shutdown::Write))
    }

    /// ID of this handle in the resource table, of kind `socket`. `None` if the table was full when
    /// the handle was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixStream;
    ///
    /// let (one, other) = UnixStream::pair()?;
    /// assert!(one.resource().is_some());
    /// assert_ne!(one.resource(), other.resource());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }
}

/// A UNIX listener, as [`std::os::unix::net::UnixListener`].
///
/// # Examples
///
/// ```
/// use kumihimo::net::{UnixListener, UnixStream};
/// use std::io::{Read, Write};
///
/// let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// let listener = UnixListener::bind(&path)?;
/// UnixStream::connect(&path)?.write_all(b"hello")?;
///
/// let (mut stream, _peer) = listener.accept()?;
/// let mut text = String::new();
/// stream.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener(Socket<std::os::unix::net::UnixListener>);

descriptor_traits!(UnixListener, std::os::unix::net::UnixListener);

impl From<std::os::unix::net::UnixListener> for UnixListener {
    /// Sets `O_NONBLOCK` on the open file; its former state decides whether `accept` waits.
    fn from(listener: std::os::unix::net::UnixListener) -> Self {
        let options = Options::adopt(&listener, Ok(None), Ok(None));
        UnixListener(Socket::kept_nonblocking(listener, options))
    }
}

impl From<UnixListener> for std::os::unix::net::UnixListener {
    /// Gives `O_NONBLOCK` the state that `set_nonblocking` asked for. Clones must not wait in
    /// `accept` after that.
    fn from(listener: UnixListener) -> Self {
        listener.0.into_std()
    }
}

impl UnixListener {
    /// Listens on `path`, which must not exist. The file remains after the listener is dropped.
    ///
    /// # Errors
    /// As bind(2), naming the path: `AddrInUse` if it exists.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        let path = path.as_ref();
        UnixListener::prepare(bind_at(&path.display(), || {
            std::os::unix::net::UnixListener::bind(path)
        })?)
    }

    /// Listens on `addr`.
    ///
    /// # Errors
    /// As bind(2), naming the address.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        let bound = bind_at(&format_args!("{addr:?}"), || {
            std::os::unix::net::UnixListener::bind_addr(addr)
        })?;
        UnixListener::prepare(bound)
    }

    fn prepare(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        longest_backlog(listener.as_fd())?;
        Ok(UnixListener::from(listener))
    }

    /// Makes a second handle to the same listener. Several threads may wait in `accept` at once.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<UnixListener> {
        self.0.try_clone().map(UnixListener)
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
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, addr) = self.0.accept(std::os::unix::net::UnixListener::accept)?;
        Ok((UnixStream(stream), addr))
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
    /// use kumihimo::net::UnixListener;
    /// use kumihimo::resource::Kind;
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// let id = listener.resource().expect("the table has room");
    /// assert_eq!(id.kind(), Kind::SOCKET);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = Incoming<'a>;
    fn into_iter(self) -> Incoming<'a> {
        self.incoming()
    }
}

/// Iterator over incoming connections; made by `incoming`. Never ends. `next` blocks the
/// microprocess until there is a connection.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{UnixListener, UnixStream};
/// use std::io::{Read, Write};
///
/// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// let listener = UnixListener::bind(&path)?;
/// for letter in [b"a", b"b"] {
///     UnixStream::connect(&path)?.write_all(letter)?;
/// }
///
/// let mut letters = String::new();
/// for stream in listener.incoming().take(2) {
///     stream?.read_to_string(&mut letters)?;
/// }
/// assert_eq!(letters, "ab");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "iterators are lazy and do nothing unless consumed"]
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl FusedIterator for Incoming<'_> {}

/// `addr` in the kernel's layout, and its length.
fn raw(addr: &SocketAddr) -> io::Result<(libc::sockaddr_un, usize)> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut raw: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A path ends in a zero byte. An abstract name begins with one, and its length determines its
    // end.
    let (name, start, end) = if let Some(path) = addr.as_pathname() {
        (path.as_os_str().as_bytes(), 0, 1)
    } else if let Some(name) = addr.as_abstract_name() {
        (name, 1, 0)
    } else {
        (&[][..], 0, 0)
    };
    let length = start + name.len() + end;
    if length > raw.sun_path.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "path must be shorter than SUN_LEN",
        ));
    }
    for (to, from) in raw.sun_path[start..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok((raw, offset_of!(libc::sockaddr_un, sun_path) + length))
}
