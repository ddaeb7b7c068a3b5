//! Options of TCP and UDP sockets that std leaves out.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::{TcpListener, TcpStream, UdpSocket};

/// Keepalive probes: when the kernel probes a silent peer, and when it gives up (tcp(7)).
///
/// # Examples
///
/// ```
/// use kumihimo::net::{Keepalive, TcpListener, TcpStream};
/// use std::time::Duration;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// // A peer that is silent for a minute has another 30 seconds to answer a probe.
/// let keepalive = Keepalive {
///     idle: Duration::from_secs(60),
///     interval: Duration::from_secs(10),
///     count: 3,
/// };
/// stream.set_keepalive(Some(keepalive))?;
/// assert_eq!(stream.keepalive()?, Some(keepalive));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe, in whole seconds.
    pub idle: Duration,
    /// Time between probes, in whole seconds.
    pub interval: Duration,
    /// Number of unanswered probes after which the connection fails with `ErrorKind::TimedOut`.
    pub count: u32,
}

impl TcpStream {
    /// Sets the size of the kernel's receive buffer, in bytes. The kernel doubles it for its own
    /// needs and bounds it by `net.core.rmem_max` (socket(7)).
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_recv_buffer_size(16 << 10)?;
    /// assert_eq!(stream.recv_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_recv_buffer_size(bytes)
    }

    /// Size of the receive buffer as the kernel counts it: twice the size that was set.
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_recv_buffer_size(32 << 10)?;
    /// assert_eq!(stream.recv_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).recv_buffer_size()
    }

    /// Sets the size of the kernel's send buffer, in bytes. The kernel doubles it and bounds it by
    /// `net.core.wmem_max`.
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_send_buffer_size(16 << 10)?;
    /// assert_eq!(stream.send_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_send_buffer_size(bytes)
    }

    /// Size of the send buffer as the kernel counts it: twice the size that was set.
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_send_buffer_size(32 << 10)?;
    /// assert_eq!(stream.send_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).send_buffer_size()
    }

    /// Sets how closing treats unsent data (`SO_LINGER`).
    ///
    /// - `None`, the default: the kernel keeps sending, and closing does not wait.
    /// - A time in whole seconds: closing blocks the kernel thread for up to that time.
    /// - Zero: unsent data is dropped, and the peer receives a reset.
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    /// use std::io::{ErrorKind, Read};
    /// use std::time::Duration;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut peer, _) = listener.accept()?;
    ///
    /// stream.set_linger(Some(Duration::ZERO))?;
    /// drop(stream);
    /// assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        SockRef::from(self).set_linger(linger)
    }

    /// See [`set_linger`](TcpStream::set_linger).
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.linger()?, None);
    /// stream.set_linger(Some(Duration::from_secs(3)))?;
    /// assert_eq!(stream.linger()?, Some(Duration::from_secs(3)));
    /// # stream.set_linger(None)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }

    /// Sets whether the kernel probes a silent peer. `None`, the default, disables probes.
    ///
    /// # Errors
    /// As setsockopt(2): `InvalidInput` for times of zero, or beyond 32,767 seconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Keepalive, TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let second = Duration::from_secs(1);
    /// stream.set_keepalive(Some(Keepalive { idle: 60 * second, interval: second, count: 5 }))?;
    /// assert_eq!(stream.keepalive()?.map(|keepalive| keepalive.idle), Some(60 * second));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        let socket = SockRef::from(self);
        let Some(Keepalive { idle, interval, count }) = keepalive else {
            return socket.set_keepalive(false);
        };
        socket.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count),
        )
    }

    /// See [`set_keepalive`](TcpStream::set_keepalive).
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.keepalive()?, None, "off by default");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn keepalive(&self) -> io::Result<Option<Keepalive>> {
        let socket = SockRef::from(self);
        if !socket.keepalive()? {
            return Ok(None);
        }
        Ok(Some(Keepalive {
            idle: socket.tcp_keepalive_time()?,
            interval: socket.tcp_keepalive_interval()?,
            count: socket.tcp_keepalive_retries()?,
        }))
    }
}

impl TcpListener {
    /// Sets the size of the kernel's receive buffer, in bytes. The kernel doubles it for its own
    /// needs and bounds it by `net.core.rmem_max` (socket(7)). Accepted
    /// connections inherit it.
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_recv_buffer_size(16 << 10)?;
    /// assert_eq!(listener.recv_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_recv_buffer_size(bytes)
    }

    /// Size of the receive buffer as the kernel counts it: twice the size that was set.
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_recv_buffer_size(32 << 10)?;
    /// assert_eq!(listener.recv_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).recv_buffer_size()
    }

    /// Sets the size of the kernel's send buffer, in bytes. The kernel doubles it and bounds it by
    /// `net.core.wmem_max`.
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_send_buffer_size(16 << 10)?;
    /// assert_eq!(listener.send_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_send_buffer_size(bytes)
    }

    /// Size of the send buffer as the kernel counts it: twice the size that was set.
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_send_buffer_size(32 << 10)?;
    /// assert_eq!(listener.send_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).send_buffer_size()
    }
}

impl UdpSocket {
    /// Sets the size of the kernel's receive buffer, in bytes. The kernel doubles it for its own
    /// needs and bounds it by `net.core.rmem_max` (socket(7)).
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_recv_buffer_size(16 << 10)?;
    /// assert_eq!(socket.recv_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_recv_buffer_size(bytes)
    }

    /// Size of the receive buffer as the kernel counts it: twice the size that was set.
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_recv_buffer_size(32 << 10)?;
    /// assert_eq!(socket.recv_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).recv_buffer_size()
    }

    /// Sets the size of the kernel's send buffer, in bytes. The kernel doubles it and bounds it by
    /// `net.core.wmem_max`.
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_send_buffer_size(16 << 10)?;
    /// assert_eq!(socket.send_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_send_buffer_size(bytes)
    }

    /// Size of the send buffer as the kernel counts it: twice the size that was set.
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_send_buffer_size(32 << 10)?;
    /// assert_eq!(socket.send_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).send_buffer_size()
    }
}
