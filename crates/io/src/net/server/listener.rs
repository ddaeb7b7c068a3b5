//! The listeners that a [`Server`] accepts from.

use std::io;
use std::os::fd::AsFd;

use crate::net::tcp::{TcpListener, TcpStream};
use crate::net::unix::{self, UnixListener, UnixStream};

/// A listener that a [`Server`](super::Server) accepts from: [`TcpListener`] or [`UnixListener`].
///
/// # Examples
///
/// ```
/// use kumihimo::net::{Listener, Server, Tally, TcpListener};
/// use std::io::{self, Write};
/// use std::time::Duration;
///
/// /// Greets the clients of any listener.
/// fn greet<L: Listener>(server: &Server, listener: &L) -> io::Result<Tally>
/// where
///     L::Stream: Write,
/// {
///     server.serve(listener, |mut stream, _peer| {
///         stream.write_all(b"hello").ok();
///     })
/// }
///
/// let server = Server::new();
/// server.drain(Duration::ZERO);
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// assert_eq!(greet(&server, &listener)?, Tally::default(), "it was drained");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Listener: AsFd + Sync + sealed::Sealed {
    /// A connection.
    type Stream: AsFd + Send;
    /// Address of the peer.
    type Addr: Send;
    #[doc(hidden)]
    fn accept(&self) -> io::Result<(Self::Stream, Self::Addr)>;
    #[doc(hidden)]
    fn address(&self) -> String;
}

mod sealed {
    /// Prevents implementations outside of this crate.
    pub trait Sealed {}
}

impl sealed::Sealed for TcpListener {}
impl Listener for TcpListener {
    type Stream = TcpStream;
    type Addr = std::net::SocketAddr;
    fn accept(&self) -> io::Result<(TcpStream, Self::Addr)> {
        self.accept()
    }
    fn address(&self) -> String {
        self.local_addr().map_or_else(|e| e.to_string(), |addr| addr.to_string())
    }
}

impl sealed::Sealed for UnixListener {}
impl Listener for UnixListener {
    type Stream = UnixStream;
    type Addr = unix::SocketAddr;
    fn accept(&self) -> io::Result<(UnixStream, Self::Addr)> {
        self.accept()
    }
    fn address(&self) -> String {
        self.local_addr().map_or_else(|e| e.to_string(), |addr| format!("{addr:?}"))
    }
}
