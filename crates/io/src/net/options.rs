//! Options that std leaves out, and sockets that have them from the start.

use std::io;
use std::mem::size_of;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use kumihimo_runtime::cancel;
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use super::address::{bind_each, connect_on, each, resolve};
use super::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use crate::limit::Limit;

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

/// The peer of a UNIX stream, as it was when that connected (unix(7), `SO_PEERCRED`).
///
/// # Examples
///
/// ```
/// use kumihimo::net::{UCred, UnixStream};
///
/// let (stream, _peer) = UnixStream::pair()?;
/// let UCred { pid, .. } = stream.peer_cred()?;
/// assert_eq!(pid, Some(std::process::id() as i32), "this process made the pair");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UCred {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process; `None`: not of this process-id namespace.
    pub pid: Option<i32>,
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

impl UnixStream {
    /// Sets the size of the kernel's receive buffer, in bytes. The kernel doubles it for its own
    /// needs and bounds it by `net.core.rmem_max` (socket(7)).
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixStream;
    ///
    /// let (stream, _peer) = UnixStream::pair()?;
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
    /// use kumihimo::net::UnixStream;
    ///
    /// let (stream, _peer) = UnixStream::pair()?;
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
    /// use kumihimo::net::UnixStream;
    ///
    /// let (stream, _peer) = UnixStream::pair()?;
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
    /// use kumihimo::net::UnixStream;
    ///
    /// let (stream, _peer) = UnixStream::pair()?;
    /// stream.set_send_buffer_size(32 << 10)?;
    /// assert_eq!(stream.send_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).send_buffer_size()
    }

    /// The peer's identity; for a pair, that of its maker.
    ///
    /// # Errors
    /// As getsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{UnixListener, UnixStream};
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// let client = UnixStream::connect(&path)?;
    /// let (stream, _) = listener.accept()?;
    /// assert_eq!(stream.peer_cred()?.pid, Some(std::process::id() as i32));
    /// assert_eq!(stream.peer_cred()?.uid, client.peer_cred()?.uid);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_cred(&self) -> io::Result<UCred> {
        let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: both are live, and `length` is that of `cred`.
        let got = unsafe {
            libc::getsockopt(
                self.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut cred).cast(),
                &raw mut length,
            )
        };
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(UCred { uid: cred.uid, gid: cred.gid, pid: Some(cred.pid).filter(|pid| *pid != 0) })
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

impl UnixListener {
    /// Sets the size of the kernel's receive buffer, in bytes. The kernel doubles it for its own
    /// needs and bounds it by `net.core.rmem_max` (socket(7)).
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// listener.set_recv_buffer_size(16 << 10)?;
    /// assert_eq!(listener.recv_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # std::fs::remove_file(&path)?;
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
    /// use kumihimo::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// listener.set_recv_buffer_size(32 << 10)?;
    /// assert_eq!(listener.recv_buffer_size()?, 64 << 10);
    /// # std::fs::remove_file(&path)?;
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
    /// use kumihimo::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// listener.set_send_buffer_size(16 << 10)?;
    /// assert_eq!(listener.send_buffer_size()?, 32 << 10, "the kernel doubles it");
    /// # std::fs::remove_file(&path)?;
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
    /// use kumihimo::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// listener.set_send_buffer_size(32 << 10)?;
    /// assert_eq!(listener.send_buffer_size()?, 64 << 10);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).send_buffer_size()
    }
}

impl UnixDatagram {
    /// Sets the size of the kernel's receive buffer, in bytes. The kernel doubles it for its own
    /// needs and bounds it by `net.core.rmem_max` (socket(7)).
    ///
    /// # Errors
    /// As setsockopt(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixDatagram;
    ///
    /// let socket = UnixDatagram::unbound()?;
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
    /// use kumihimo::net::UnixDatagram;
    ///
    /// let socket = UnixDatagram::unbound()?;
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
    /// use kumihimo::net::UnixDatagram;
    ///
    /// let socket = UnixDatagram::unbound()?;
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
    /// use kumihimo::net::UnixDatagram;
    ///
    /// let socket = UnixDatagram::unbound()?;
    /// socket.set_send_buffer_size(32 << 10)?;
    /// assert_eq!(socket.send_buffer_size()?, 64 << 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        SockRef::from(self).send_buffer_size()
    }
}

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
