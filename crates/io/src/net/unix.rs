//! UNIX sockets, as `std::os::unix::net`.

use std::io;
use std::mem::offset_of;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_runtime::cancel;
use kumihimo_runtime::readiness::Interest;

use super::address::{bind_at, connect_raw, stream_socket};
use super::socket::{Done, Family, Limit, Options, Socket, is_nonblocking, longest_backlog};
use kumihimo_runtime::thread::blocking;

pub use super::unix_datagram::UnixDatagram;
pub use std::os::unix::net::SocketAddr;

/// A connection over a UNIX socket, as [`std::os::unix::net::UnixStream`].
pub struct UnixStream(Socket<std::os::unix::net::UnixStream>);

/// A UNIX socket that listens, as [`std::os::unix::net::UnixListener`].
pub struct UnixListener(Socket<std::os::unix::net::UnixListener>);

stream_traits!(UnixStream, std::os::unix::net::UnixStream, Family::Unix);
listener_traits!(UnixListener, std::os::unix::net::UnixListener, UnixStream);

impl UnixStream {
    /// Connects to the socket at `path`. A cancellation point.
    ///
    /// Waits if the listener's backlog is full; see the [module](super) for what that blocks.
    ///
    /// # Errors
    /// As connect(2); `TimedOut` when the deadline of a scope has passed.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Connects to the socket with the address `addr`, as [`connect`](UnixStream::connect) does.
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
                // What bounds a waiting connect is the send timeout.
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
}

/// Repeats what a signal interrupts.
fn patient(mut f: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match f() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl UnixListener {
    /// Listens on `path`, which must not exist yet; nobody removes it afterwards.
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
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = Incoming<'a>;
    fn into_iter(self) -> Incoming<'a> {
        self.incoming()
    }
}

/// `addr` as the kernel takes it, and its length.
fn raw(addr: &SocketAddr) -> io::Result<(libc::sockaddr_un, usize)> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut raw: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A path ends in a zero byte; an abstract name begins with one, and its length says where it
    // ends.
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
