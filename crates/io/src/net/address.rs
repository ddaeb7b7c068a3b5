//! Resolution of names, socket addresses in the kernel's layout, and connecting.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream, ToSocketAddrs,
};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use kumihimo_runtime::readiness::{Interest, Source};

use crate::limit::Limit;
use crate::type_view::{type_id, view};
use kumihimo_runtime::thread::blocking;

/// All addresses that `addr` stands for.
///
/// The trait does not show whether a look-up is needed. So every type except std's own types with a
/// numeric address is resolved inside `blocking`, which frees the virtual processor.
pub(super) fn resolve<A: ToSocketAddrs>(addr: A) -> io::Result<Vec<SocketAddr>> {
    if is_numeric(&addr) {
        return Ok(addr.to_socket_addrs()?.collect());
    }
    blocking(|| Ok(addr.to_socket_addrs()?.collect()))
}

/// Whether std resolves `addr` without a look-up.
fn is_numeric<A>(addr: &A) -> bool {
    let known = [
        type_id::<SocketAddr>(),
        type_id::<SocketAddrV4>(),
        type_id::<SocketAddrV6>(),
        type_id::<(IpAddr, u16)>(),
        type_id::<(Ipv4Addr, u16)>(),
        type_id::<(Ipv6Addr, u16)>(),
        type_id::<&SocketAddr>(),
        type_id::<&[SocketAddr]>(),
    ];
    let address = |text: &str| text.parse::<SocketAddr>().is_ok();
    let host = |text: &str| text.parse::<IpAddr>().is_ok();
    // SAFETY: the views are used inside this function only.
    known.contains(&type_id::<A>())
        || unsafe {
            view::<A, &str>(addr).is_some_and(|text| address(text))
                || view::<A, String>(addr).is_some_and(|text| address(text))
                || view::<A, &String>(addr).is_some_and(|text| address(text))
                || view::<A, (&str, u16)>(addr).is_some_and(|(name, _)| host(name))
                || view::<A, (String, u16)>(addr).is_some_and(|(name, _)| host(name))
        }
}

/// Tries `f` on each address until one succeeds; the last error otherwise.
pub(super) fn each<T>(
    addrs: &[SocketAddr],
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addrs {
        match f(addr) {
            Ok(t) => return Ok(t),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(ErrorKind::InvalidInput, "could not resolve to any addresses")
    }))
}

/// As [`each`], for binding: the error names the address and advises what to do.
pub(super) fn bind_each<T>(
    addrs: &[SocketAddr],
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    each(addrs, |addr| bind_at(addr, || f(addr)))
}

/// Adds the address `at` and advice to an error of `f` that concerns the address. Its kind stays.
pub(super) fn bind_at<T>(at: &dyn Display, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    f().map_err(|e| {
        let advice = match e.raw_os_error() {
            Some(libc::EADDRINUSE) => {
                "another socket has it: choose another address, or end its owner (ss -lnp shows it)"
            }
            Some(libc::EADDRNOTAVAIL) => "no interface of this machine has it (ip address shows them)",
            Some(libc::EAFNOSUPPORT) => "this machine has no such protocol (IPv6 may be off): choose an IPv4 address",
            Some(libc::EACCES) => {
                "not permitted: ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE, and paths a \
                 directory that can be written"
            }
            _ => return e,
        };
        io::Error::new(e.kind(), format!("cannot bind {at}: {e}; {advice}"))
    })
}

/// Creates a socket with SOCK_CLOEXEC and SOCK_NONBLOCK.
pub(super) fn stream_socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe {
        kumihimo_arch::kernel::socket(
            family,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Connects to `addr`, waiting within `limit`. The source has the stream's registration.
pub(super) fn connect(addr: &SocketAddr, limit: &Limit) -> io::Result<(TcpStream, Source)> {
    connect_on(
        stream_socket(if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 })?,
        addr,
        limit,
    )
}

/// The same, with a fresh socket that does not wait.
pub(super) fn connect_on(
    fd: OwnedFd,
    addr: &SocketAddr,
    limit: &Limit,
) -> io::Result<(TcpStream, Source)> {
    let started = start(&fd, addr);
    let stream = TcpStream::from(fd);
    let source = Source::new(stream.as_raw_fd());
    match started {
        Ok(()) => {}
        // An interrupted connect continues asynchronously, like a nonblocking one (connect(2)).
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
            finish(&stream, &source, limit)?
        }
        Err(e) => return Err(e),
    }
    // Calls of this crate pass MSG_DONTWAIT each time; code that takes the descriptor out expects
    // a blocking one.
    stream.set_nonblocking(false)?;
    Ok((stream, source))
}

fn finish(stream: &TcpStream, source: &Source, limit: &Limit) -> io::Result<()> {
    let mut seen = source.seen(Interest::Write);
    loop {
        limit.wait(source, Interest::Write, seen, || {
            io::Error::new(ErrorKind::TimedOut, "connection timed out")
        })?;
        // Read before the outcome: any edge after this point ends the next wait.
        seen = source.seen(Interest::Write);
        if let Some(e) = stream.take_error()? {
            return Err(e);
        }
        match stream.peer_addr() {
            Ok(_) => return Ok(()),
            // A spurious return: still under way.
            Err(e) if e.kind() == ErrorKind::NotConnected => {}
            Err(e) => return Err(e),
        }
    }
}

fn start(fd: &OwnedFd, addr: &SocketAddr) -> io::Result<()> {
    match addr {
        SocketAddr::V4(a) => {
            // SAFETY: all-zero is a valid sockaddr_in.
            let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            raw.sin_family = libc::AF_INET as libc::sa_family_t;
            raw.sin_port = a.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            connect_raw(fd, &raw, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(a) => {
            // SAFETY: all-zero is a valid sockaddr_in6.
            let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_port = a.port().to_be();
            raw.sin6_addr.s6_addr = a.ip().octets();
            raw.sin6_flowinfo = a.flowinfo();
            raw.sin6_scope_id = a.scope_id();
            connect_raw(fd, &raw, size_of::<libc::sockaddr_in6>())
        }
    }
}

/// `length` must not exceed the size of `T`, which is a socket address.
pub(super) fn connect_raw<T>(fd: &OwnedFd, raw: &T, length: usize) -> io::Result<()> {
    debug_assert!(length <= size_of::<T>());
    // SAFETY: `raw` is valid for reads of `length` bytes; the kernel reads nothing else.
    match unsafe {
        libc::connect(fd.as_raw_fd(), std::ptr::from_ref(raw).cast(), length as libc::socklen_t)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
