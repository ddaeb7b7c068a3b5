//! Sockets with options that must be set before they are bound or connected.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use kumihimo_runtime::cancel;
use socket2::{Domain, Socket, Type};

use super::address::{bind_each, connect_on, each, resolve};
use super::{TcpListener, TcpStream, UdpSocket};
use crate::limit::Limit;

/// Settings that a socket must have before it is bound or connected.
///
/// # Examples
///
/// ```
/// use kumihimo::net::SocketBuilder;
///
/// // Two listeners share a port: the kernel divides the connections between them.
/// let shared = SocketBuilder::new().reuse_port(true);
/// let first = shared.listen("127.0.0.1:0")?;
/// let second = shared.listen(first.local_addr()?)?;
/// assert_eq!(first.local_addr()?, second.local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SocketBuilder {
    reuse_port: bool,
    only_v6: Option<bool>,
    backlog: Option<u32>,
    recv_buffer: Option<usize>,
    send_buffer: Option<usize>,
    local: Option<SocketAddr>,
}

impl SocketBuilder {
    /// Settings like those of std's sockets.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::SocketBuilder;
    ///
    /// let socket = SocketBuilder::new().udp("127.0.0.1:0")?;
    /// assert!(socket.local_addr()?.ip().is_loopback());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> SocketBuilder {
        SocketBuilder::default()
    }

    /// Sets whether several sockets of one user may bind the same address (`SO_REUSEPORT`). All of
    /// them must set it; the kernel distributes incoming connections or datagrams among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{SocketBuilder, UdpSocket};
    /// use std::io::ErrorKind;
    ///
    /// let shared = SocketBuilder::new().reuse_port(true);
    /// let first = shared.udp("127.0.0.1:0")?;
    /// let addr = first.local_addr()?;
    /// assert!(shared.udp(addr).is_ok());
    /// assert_eq!(UdpSocket::bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reuse_port(mut self, on: bool) -> SocketBuilder {
        self.reuse_port = on;
        self
    }

    /// Sets whether a socket at an IPv6 address (`[::]`) accepts IPv6 only, or IPv4 too
    /// (`IPV6_V6ONLY`). Default: `net.ipv6.bindv6only`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{SocketBuilder, TcpStream};
    /// use std::io::ErrorKind;
    ///
    /// # if std::net::TcpListener::bind("[::1]:0").is_err() { return Ok(()) } // IPv6 may be off.
    /// let listener = SocketBuilder::new().only_v6(true).listen("[::]:0")?;
    /// let port = listener.local_addr()?.port();
    /// assert!(TcpStream::connect(("::1", port)).is_ok());
    /// let error = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn only_v6(mut self, on: bool) -> SocketBuilder {
        self.only_v6 = Some(on);
        self
    }

    /// Sets the maximum number of connections that wait to be accepted. Default and upper bound:
    /// `net.core.somaxconn`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{SocketBuilder, TcpStream};
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// // Linux lets one more connection wait than the backlog says.
    /// let listener = SocketBuilder::new().backlog(0).listen("127.0.0.1:0")?;
    /// let addr = listener.local_addr()?;
    /// let _waits = TcpStream::connect(addr)?;
    /// let second = TcpStream::connect_timeout(&addr, Duration::from_millis(20));
    /// assert_eq!(second.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn backlog(mut self, connections: u32) -> SocketBuilder {
        self.backlog = Some(connections);
        self
    }

    /// See [`TcpStream::set_recv_buffer_size`]. Before a connection is made, it also bounds TCP's
    /// window.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::SocketBuilder;
    ///
    /// let socket = SocketBuilder::new().recv_buffer_size(64 << 10).udp("127.0.0.1:0")?;
    /// assert_eq!(socket.recv_buffer_size()?, 128 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_buffer_size(mut self, bytes: usize) -> SocketBuilder {
        self.recv_buffer = Some(bytes);
        self
    }

    /// See [`TcpStream::set_send_buffer_size`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::SocketBuilder;
    ///
    /// let socket = SocketBuilder::new().send_buffer_size(64 << 10).udp("127.0.0.1:0")?;
    /// assert_eq!(socket.send_buffer_size()?, 128 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_buffer_size(mut self, bytes: usize) -> SocketBuilder {
        self.send_buffer = Some(bytes);
        self
    }

    /// The address from which [`connect`](SocketBuilder::connect) connects.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{SocketBuilder, TcpListener};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let source = "127.0.0.2:0".parse().unwrap();
    /// let _client = SocketBuilder::new().local_addr(source).connect(listener.local_addr()?)?;
    /// let (_stream, peer) = listener.accept()?;
    /// assert_eq!(peer.ip(), source.ip());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(mut self, addr: SocketAddr) -> SocketBuilder {
        self.local = Some(addr);
        self
    }

    /// As [`TcpListener::bind`]. Blocks the microprocess only while a host name is resolved.
    ///
    /// # Errors
    /// The same.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{SocketBuilder, TcpStream};
    ///
    /// let listener = SocketBuilder::new().backlog(64).listen("127.0.0.1:0")?;
    /// let client = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(listener.accept()?.1, client.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn listen<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpListener> {
        let backlog =
            self.backlog.map_or(libc::c_int::MAX, |n| n.try_into().unwrap_or(libc::c_int::MAX));
        let socket = bind_each(&resolve(addr)?, |addr| {
            let socket = self.socket(addr, Type::STREAM)?;
            socket.set_reuse_address(true)?;
            socket.bind(&(*addr).into())?;
            socket.listen(backlog)?;
            Ok(socket)
        })?;
        Ok(TcpListener::from(std::net::TcpListener::from(blocking(socket)?)))
    }

    /// As [`UdpSocket::bind`]. Blocks the microprocess only while a host name is resolved.
    ///
    /// # Errors
    /// The same.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::SocketBuilder;
    ///
    /// let socket = SocketBuilder::new().recv_buffer_size(64 << 10).udp("127.0.0.1:0")?;
    /// socket.send_to(b"to itself", socket.local_addr()?)?;
    /// assert_eq!(socket.recv(&mut [0; 100])?, 9);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn udp<A: ToSocketAddrs>(&self, addr: A) -> io::Result<UdpSocket> {
        let socket = bind_each(&resolve(addr)?, |addr| {
            let socket = self.socket(addr, Type::DGRAM)?;
            socket.bind(&(*addr).into())?;
            Ok(socket)
        })?;
        Ok(UdpSocket::from(std::net::UdpSocket::from(blocking(socket)?)))
    }

    /// As [`TcpStream::connect`]. Blocks the microprocess until the connection is established. A
    /// cancellation point.
    ///
    /// # Errors
    /// The same, and errors of binding to [`local_addr`](SocketBuilder::local_addr).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{SocketBuilder, TcpListener};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let builder = SocketBuilder::new().send_buffer_size(64 << 10);
    /// let stream = builder.connect(listener.local_addr()?)?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpStream> {
        cancel::point();
        let addrs = resolve(addr)?;
        let limit = Limit::new(None);
        each(&addrs, |addr| {
            let socket = self.socket(addr, Type::STREAM)?;
            if let Some(local) = self.local {
                bind_each(&[local], |local| socket.bind(&(*local).into()))?;
            }
            Ok(TcpStream::connected(connect_on(OwnedFd::from(socket), addr, &limit)?))
        })
    }

    /// Creates a nonblocking socket with these settings, as [`connect_on`] requires.
    fn socket(&self, addr: &SocketAddr, kind: Type) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(*addr), kind.nonblocking(), None)?;
        if self.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if let (Some(only), true) = (self.only_v6, addr.is_ipv6()) {
            socket.set_only_v6(only)?;
        }
        if let Some(bytes) = self.recv_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        Ok(socket)
    }
}

/// Clears O_NONBLOCK, which the conversions interpret as "calls wait".
fn blocking(socket: Socket) -> io::Result<Socket> {
    socket.set_nonblocking(false)?;
    Ok(socket)
}
