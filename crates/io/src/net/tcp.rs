//! TCP.

use std::io;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_runtime::cancel;
use kumihimo_runtime::readiness::{Interest, Source};

use super::address::{bind_each, connect, each, resolve};
use super::socket::{Done, Family, Limit, Options, Socket, is_nonblocking, longest_backlog};

/// A TCP connection, as [`std::net::TcpStream`].
pub struct TcpStream(Socket<std::net::TcpStream>);

/// A TCP socket that listens, as [`std::net::TcpListener`].
pub struct TcpListener(Socket<std::net::TcpListener>);

stream_traits!(TcpStream, std::net::TcpStream, Family::Tcp);
listener_traits!(TcpListener, std::net::TcpListener, TcpStream);

impl TcpStream {
    /// Connects to the first address of `addr` that answers. A cancellation point.
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

    /// Connects to `addr`, waiting no longer than `timeout`. A cancellation point.
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
}

impl TcpListener {
    /// Listens on the first address of `addr` that can be bound; port 0 lets the kernel choose.
    /// Sets `SO_REUSEADDR`, as std does.
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
}
