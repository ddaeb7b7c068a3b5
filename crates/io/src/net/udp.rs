//! UDP sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use kumihimo_resource::id::Id;
use kumihimo_runtime::cancel;
use kumihimo_runtime::readiness::Interest;
use kumihimo_runtime::syscall_batch::Address;

use super::address::{bind_each, each, resolve};
use super::socket::{Options, Socket};
use crate::fd_traits::descriptor_traits;

/// A UDP socket, as [`std::net::UdpSocket`].
///
/// # Examples
///
/// ```
/// use kumihimo::net::UdpSocket;
///
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let client = UdpSocket::bind("127.0.0.1:0")?;
/// client.send_to(b"what time is it?", server.local_addr()?)?;
///
/// let mut question = [0; 100];
/// let (length, from) = server.recv_from(&mut question)?;
/// assert_eq!(&question[..length], b"what time is it?");
/// assert_eq!(from, client.local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(Socket<std::net::UdpSocket>);

/// Sender that `recv_from` returns after a shutdown, with a length of 0.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

descriptor_traits!(UdpSocket, std::net::UdpSocket);

impl From<std::net::UdpSocket> for UdpSocket {
    /// Takes over the timeouts and the nonblocking mode of the socket. Sets `O_NONBLOCK` on the
    /// open file.
    fn from(socket: std::net::UdpSocket) -> Self {
        let options = Options::adopt(&socket, socket.read_timeout(), socket.write_timeout());
        UdpSocket(Socket::kept_nonblocking(socket, options))
    }
}

impl From<UdpSocket> for std::net::UdpSocket {
    /// Gives `O_NONBLOCK` the state that `set_nonblocking` asked for. Clones must not wait after
    /// that.
    fn from(socket: UdpSocket) -> Self {
        socket.0.into_std()
    }
}

impl UdpSocket {
    /// A socket at the first address of `addr` that can be bound; port 0 lets the kernel choose.
    /// Blocks the microprocess only while a host name is resolved.
    ///
    /// # Errors
    /// That of the last address tried, naming it; `InvalidInput` if there is none.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        let addrs = resolve(addr)?;
        Ok(UdpSocket::from(bind_each(&addrs, |a| std::net::UdpSocket::bind(a))?))
    }

    /// Connects to the first reachable address of `addr`: `send` sends to it, and only its
    /// datagrams are received. Blocks the microprocess only while a host name is resolved.
    ///
    /// # Errors
    /// That of the last address tried; `InvalidInput` if there is none.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        cancel::point();
        each(&resolve(addr)?, |a| self.0.inner.connect(a))
    }

    /// Sends a datagram to the first address of `addr`. Blocks the microprocess while a host name
    /// is resolved, and until the kernel's buffer has room. A cancellation point.
    ///
    /// # Errors
    /// `InvalidInput` if there is no address; else as [`send`](UdpSocket::send).
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let to = *resolve(addr)?.first().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to")
        })?;
        self.0.send_datagram(Some(&Address::new(&to)), buf)
    }

    /// Makes a second handle to the same socket, which shares its options. Several threads may wait
    /// at once: each datagram goes to one of them.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<UdpSocket> {
        self.0.try_clone().map(UdpSocket)
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
        self.0.receive((0, NOBODY), || self.0.inner.recv_from(buf))
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

    /// Sends a datagram to the connected peer. Blocks the microprocess until the kernel's buffer
    /// has room. A cancellation point. Never raises a signal.
    ///
    /// # Errors
    /// `WouldBlock` after the write timeout; `TimedOut` when the deadline of a scope has passed;
    /// otherwise as send(2): `EMSGSIZE` if it is too long for one datagram, `NotConnected` or
    /// `EDESTADDRREQ` without a peer.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send_datagram(None, buf)
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
    /// use kumihimo::net::UdpSocket;
    /// use kumihimo::resource::Kind;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = socket.resource().expect("the table has room");
    /// assert_eq!(id.kind(), Kind::SOCKET);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }

    /// As [`recv_from`](UdpSocket::recv_from), and leaves the datagram for the next call. Blocks
    /// the microprocess until there is a datagram.
    ///
    /// # Errors
    /// The same.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.receive((0, NOBODY), || self.0.inner.peek_from(buf))
    }

    /// As [`recv`](UdpSocket::recv), and leaves the datagram for the next call. Blocks the
    /// microprocess until there is a datagram.
    ///
    /// # Errors
    /// The same.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.receive(0, || self.0.inner.peek(buf))
    }
}

/// Options of std's type.
impl UdpSocket {
    /// Whether broadcast addresses may be sent to (`SO_BROADCAST`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_broadcast(&self, value: bool) -> io::Result<()> {
        self.0.inner.set_broadcast(value)
    }

    /// Whether broadcast addresses may be sent to (`SO_BROADCAST`).
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.inner.broadcast()
    }

    /// Whether multicasts sent here come back to this machine (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_multicast_loop_v4(&self, value: bool) -> io::Result<()> {
        self.0.inner.set_multicast_loop_v4(value)
    }

    /// Whether multicasts sent here come back to this machine (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.inner.multicast_loop_v4()
    }

    /// Whether multicasts sent here come back to this machine (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_multicast_loop_v6(&self, value: bool) -> io::Result<()> {
        self.0.inner.set_multicast_loop_v6(value)
    }

    /// Whether multicasts sent here come back to this machine (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.inner.multicast_loop_v6()
    }

    /// Time to live of outgoing multicasts, in hops.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_multicast_ttl_v4(&self, value: u32) -> io::Result<()> {
        self.0.inner.set_multicast_ttl_v4(value)
    }

    /// Time to live of outgoing multicasts, in hops.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.inner.multicast_ttl_v4()
    }

    /// Time to live of outgoing packets, in hops.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_ttl(&self, value: u32) -> io::Result<()> {
        self.0.inner.set_ttl(value)
    }

    /// Time to live of outgoing packets, in hops.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.inner.ttl()
    }

    /// Joins a multicast group on the interface that has `interface`; `0.0.0.0`: the kernel
    /// chooses.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.inner.join_multicast_v4(group, interface)
    }

    /// Joins a multicast group on the interface of index `interface`; 0: any.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.inner.join_multicast_v6(group, interface)
    }

    /// Leaves a group: see [`join_multicast_v4`](UdpSocket::join_multicast_v4).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.inner.leave_multicast_v4(group, interface)
    }

    /// Leaves a group: see [`join_multicast_v6`](UdpSocket::join_multicast_v6).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.inner.leave_multicast_v6(group, interface)
    }
}
