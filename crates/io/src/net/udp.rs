//! UDP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_runtime::cancel;
use kumihimo_runtime::readiness::Interest;
use kumihimo_runtime::syscall_batch::Address;

use super::address::{bind_each, each, resolve};
use super::socket::{Done, Options, Socket, is_nonblocking, is_shut_down};

/// A UDP socket, as [`std::net::UdpSocket`].
pub struct UdpSocket(Socket<std::net::UdpSocket>);

datagram_traits!(UdpSocket, std::net::UdpSocket, NOBODY);

const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl UdpSocket {
    /// A socket at the first address of `addr` that can be bound; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// That of the last address tried, naming it; `InvalidInput` if there is none.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        let addrs = resolve(addr)?;
        Ok(UdpSocket::from(bind_each(&addrs, |a| std::net::UdpSocket::bind(a))?))
    }

    /// Fixes the peer: `send` goes there, and only what comes from there is received. The first
    /// address of `addr` that can be reached. Waits for nothing but the look-up of a name.
    ///
    /// # Errors
    /// That of the last address tried; `InvalidInput` if there is none.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        cancel::point();
        each(&resolve(addr)?, |a| self.0.inner.connect(a))
    }

    /// Sends a datagram to the first address of `addr`, waiting for room. A cancellation point.
    ///
    /// # Errors
    /// `InvalidInput` if there is no address; else as [`send`](UdpSocket::send).
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let to = *resolve(addr)?.first().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to")
        })?;
        self.0.send_datagram(Some(&Address::new(&to)), buf)
    }

    fn send_one(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send_datagram(None, buf)
    }

    /// As [`recv_from`](UdpSocket::recv_from), and leaves the datagram for the next call.
    ///
    /// # Errors
    /// The same.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive((0, NOBODY), || self.0.inner.peek_from(buf))
    }

    /// As [`recv`](UdpSocket::recv), and leaves the datagram for the next call.
    ///
    /// # Errors
    /// The same.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(0, || self.0.inner.peek(buf))
    }
}

/// Options of the socket that std has too.
macro_rules! options {
    ($($what:literal, $set:ident, $get:ident: $type:ty;)*) => {
        impl UdpSocket {
            $(
                #[doc = $what]
                ///
                /// # Errors
                /// As setsockopt(2).
                pub fn $set(&self, value: $type) -> io::Result<()> {
                    self.0.inner.$set(value)
                }

                #[doc = $what]
                ///
                /// # Errors
                /// As getsockopt(2).
                pub fn $get(&self) -> io::Result<$type> {
                    self.0.inner.$get()
                }
            )*
        }
    };
}

options! {
    "Whether broadcast addresses may be sent to (`SO_BROADCAST`).", set_broadcast, broadcast: bool;
    "Whether multicasts sent here come back to this machine (`IP_MULTICAST_LOOP`).", set_multicast_loop_v4, multicast_loop_v4: bool;
    "Whether multicasts sent here come back to this machine (`IPV6_MULTICAST_LOOP`).", set_multicast_loop_v6, multicast_loop_v6: bool;
    "Time to live of outgoing multicasts, in hops.", set_multicast_ttl_v4, multicast_ttl_v4: u32;
    "Time to live of outgoing packets, in hops.", set_ttl, ttl: u32;
}

impl UdpSocket {
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
