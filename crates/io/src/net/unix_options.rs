//! Options of UNIX sockets that std leaves out, and the credentials of a peer.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use socket2::SockRef;

use super::{UnixDatagram, UnixListener, UnixStream};

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
