//! UNIX datagram sockets.

use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use kumihimo_resource::id::Id;
use kumihimo_runtime::readiness::{Interest, Source};
use socket2::SockRef;

use super::address::bind_at;
use super::socket::{Done, Options, Socket};
use crate::fd_traits::descriptor_traits;
use crate::limit::Limit;

/// A UNIX datagram socket, as [`std::os::unix::net::UnixDatagram`]. Datagrams arrive in order and
/// are not lost: a sender waits for room at the receiver.
///
/// # Examples
///
/// ```
/// use kumihimo::net::UnixDatagram;
///
/// let (one, other) = UnixDatagram::pair()?;
/// one.send(b"first")?;
/// one.send(b"second")?;
///
/// let mut message = [0; 100];
/// let length = other.recv(&mut message)?;
/// assert_eq!(&message[..length], b"first");
/// let length = other.recv(&mut message)?;
/// assert_eq!(&message[..length], b"second");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram(Socket<std::os::unix::net::UnixDatagram>);

descriptor_traits!(UnixDatagram, std::os::unix::net::UnixDatagram);

impl From<std::os::unix::net::UnixDatagram> for UnixDatagram {
    /// Takes over the timeouts and the nonblocking mode of the socket. Sets `O_NONBLOCK` on the
    /// open file.
    fn from(socket: std::os::unix::net::UnixDatagram) -> Self {
        let options = Options::adopt(&socket, socket.read_timeout(), socket.write_timeout());
        UnixDatagram(Socket::kept_nonblocking(socket, options))
    }
}

impl From<UnixDatagram> for std::os::unix::net::UnixDatagram {
    /// Gives `O_NONBLOCK` the state that `set_nonblocking` asked for. Clones must not wait after
    /// that.
    fn from(socket: UnixDatagram) -> Self {
        socket.0.into_std()
    }
}

impl UnixDatagram {
    /// Binds a socket to `path`, which must not exist. The file remains after the socket is
    /// dropped.
    ///
    /// # Errors
    /// As bind(2), naming the path: `AddrInUse` if it exists.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        let path = path.as_ref();
        bind_at(&path.display(), || std::os::unix::net::UnixDatagram::bind(path))
            .map(UnixDatagram::from)
    }

    /// Binds a socket to `addr`.
    ///
    /// # Errors
    /// As bind(2), naming the address.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        bind_at(&format_args!("{addr:?}"), || std::os::unix::net::UnixDatagram::bind_addr(addr))
            .map(UnixDatagram::from)
    }

    /// A socket without an address: it can send, and receive from a peer to which it is connected
    /// and that is connected to it.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn unbound() -> io::Result<UnixDatagram> {
        std::os::unix::net::UnixDatagram::unbound().map(UnixDatagram::from)
    }

    /// Two connected sockets without names.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = std::os::unix::net::UnixDatagram::pair()?;
        Ok((a.into(), b.into()))
    }

    /// Connects to the socket at `path`. Does not wait.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.0.inner.connect(path)
    }

    /// Connects to the socket with the address `addr`. Does not wait.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.0.inner.connect_addr(addr)
    }

    /// Makes a second handle to the same socket, which shares its options. Several threads may wait
    /// at once: each datagram goes to one of them.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<UnixDatagram> {
        self.0.try_clone().map(UnixDatagram)
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.inner.local_addr()
    }

    /// The address that the socket is connected to.
    ///
    /// # Errors
    /// `NotConnected` if it is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.inner.peer_addr()
    }

    /// Receives a datagram; returns its length and its sender. Bytes that do not fit into `buf` are
    /// lost. Blocks the microprocess until there is one. A cancellation point.
    ///
    /// # Errors
    /// `WouldBlock` after the read timeout; `TimedOut` when the deadline of a scope has passed;
    /// otherwise as recvfrom(2).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.receive((0, nobody()?), || self.0.inner.recv_from(buf))
    }

    /// Receives a datagram; returns its length. Bytes that do not fit into `buf` are lost. Blocks
    /// the microprocess until there is one. A cancellation point.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from); an error that the peer of a connected socket has sent
    /// back (`ConnectionRefused`).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.receive(0, || self.0.inner.recv(buf))
    }

    /// Sends a datagram to the connected peer. Blocks the microprocess until the peer has room. A
    /// cancellation point. Never raises a signal.
    ///
    /// # Errors
    /// `WouldBlock` after the write timeout; `TimedOut` when the deadline of a scope has passed;
    /// otherwise as send(2): `EMSGSIZE` if it is too long for one datagram, `NotConnected` or
    /// `EDESTADDRREQ` without a peer.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.attempt(Interest::Write, |_| Ok(Done { value: self.0.inner.send(buf)?, dry: false }))
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
    /// use kumihimo::net::UnixDatagram;
    /// use kumihimo::resource::Kind;
    ///
    /// let socket = UnixDatagram::unbound()?;
    /// let id = socket.resource().expect("the table has room");
    /// assert_eq!(id.kind(), Kind::SOCKET);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }

    /// Sends a datagram to the socket at `path`. Blocks the microprocess until that socket has
    /// room. A cancellation point.
    ///
    /// # Errors
    /// As [`send`](UnixDatagram::send); `NotFound` or `ConnectionRefused` if there is no socket; no
    /// descriptor left, when it has to wait.
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        self.send_to_addr(buf, &SocketAddr::from_pathname(path)?)
    }

    /// Sends a datagram to the socket with the address `addr`, as
    /// [`send_to`](UnixDatagram::send_to) does. Blocks the microprocess until that socket has room.
    ///
    /// # Errors
    /// The same.
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        let limit = Limit::new(self.0.options.get_timeout(Interest::Write));
        loop {
            let sent = self.0.attempt(Interest::Write, |_| {
                let value = match self.0.inner.send_to_addr(buf, addr) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock && !self.waits_for_itself() => {
                        None
                    }
                    other => Some(other?),
                };
                Ok(Done { value, dry: false })
            })?;
            match sent {
                Some(n) => return Ok(n),
                None => wait_for_room_at(addr, &limit)?,
            }
        }
    }

    /// Whether a call that would wait is to fail, or waits for room in this socket's own buffer:
    /// its readiness tells of both.
    fn waits_for_itself(&self) -> bool {
        let mut sent: libc::c_int = 0;
        // SAFETY: SIOCOUTQ writes one int.
        let told = unsafe { libc::ioctl(self.0.fd(), libc::TIOCOUTQ, &raw mut sent) } == 0;
        let room = SockRef::from(&self.0.inner).send_buffer_size();
        self.0.options.nonblocking() || told && room.is_ok_and(|room| sent as usize >= room)
    }

    /// As [`recv`](UnixDatagram::recv), and leaves the datagram for the next call. Blocks the
    /// microprocess until there is a datagram.
    ///
    /// # Errors
    /// The same.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixDatagram;
    ///
    /// let (one, other) = UnixDatagram::pair()?;
    /// one.send(b"look")?;
    /// let mut message = [0; 4];
    /// assert_eq!(other.peek(&mut message)?, 4);
    /// assert_eq!(&message, b"look");
    /// assert_eq!(other.recv(&mut message)?, 4, "it was still there");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.receive(0, || SockRef::from(&self.0.inner).peek(uninit(buf)))
    }

    /// As [`recv_from`](UnixDatagram::recv_from), and leaves the datagram for the next call. Blocks
    /// the microprocess until there is a datagram.
    ///
    /// # Errors
    /// The same.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixDatagram;
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let server = UnixDatagram::bind(&path)?;
    /// UnixDatagram::unbound()?.send_to(b"hello", &path)?;
    ///
    /// let mut message = [0; 5];
    /// let (length, from) = server.peek_from(&mut message)?;
    /// assert_eq!((length, &message), (5, b"hello"));
    /// assert!(from.is_unnamed());
    /// assert_eq!(server.recv(&mut message)?, 5, "it was still there");
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.receive((0, nobody()?), || {
            let (n, from) = SockRef::from(&self.0.inner).peek_from(uninit(buf))?;
            let from = match (from.as_pathname(), from.as_abstract_namespace()) {
                (Some(path), _) => SocketAddr::from_pathname(path)?,
                (_, Some(name)) => SocketAddr::from_abstract_name(name)?,
                (None, None) => nobody()?,
            };
            Ok((n, from))
        })
    }

    /// Ends one direction or both, for all handles. A call that waits to receive returns 0.
    ///
    /// # Errors
    /// `NotConnected` if it has no peer.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.inner.shutdown(how)
    }
}

/// The address without a name.
fn nobody() -> io::Result<SocketAddr> {
    SocketAddr::from_pathname("")
}

/// Waits until a datagram can be sent to `addr`, or at least until it is worth a try.
///
/// Readiness tells of room at the *connected* peer only (unix_dgram_poll in the kernel's
/// net/unix/af_unix.c): so a socket of this call's own is connected to `addr`, and waited for.
fn wait_for_room_at(addr: &SocketAddr, limit: &Limit) -> io::Result<()> {
    let envoy = std::os::unix::net::UnixDatagram::unbound()?;
    match envoy.connect_addr(addr) {
        // Gone, or by now connected to somebody: sending says it better. (To a peer that is
        // connected to the sender there always is room.)
        Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNREFUSED | libc::EPERM)) => {
            return Ok(());
        }
        other => other?,
    }
    let source = Source::new(envoy.as_raw_fd());
    let seen = source.seen(Interest::Write);
    limit.wait(&source, Interest::Write, seen, || io::Error::from_raw_os_error(libc::EAGAIN))
}

fn uninit(buf: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same layout; socket2 promises to write initialised bytes only.
    unsafe { &mut *(std::ptr::from_mut(buf) as *mut [MaybeUninit<u8>]) }
}
