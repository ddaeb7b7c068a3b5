//! UDP.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use kumihimo_io::net::UdpSocket;

use super::Env;
use super::tcp::{LOCAL, SHORT};

fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(LOCAL).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

pub fn pair() -> (UdpSocket, UdpSocket) {
    let ((a, at_a), (b, at_b)) = (bound(), bound());
    a.connect(at_b).unwrap();
    b.connect(at_a).unwrap();
    (a, b)
}

pub fn udp_echo(env: Env) {
    let (server, addr) = bound();
    let echo = env.spawn(move || {
        let mut buf = [0; 100];
        loop {
            let (n, from) = server.recv_from(&mut buf).unwrap();
            assert_eq!(server.send_to(&buf[..n], from).unwrap(), n);
            if n == 0 {
                break;
            }
        }
    });
    let (client, _) = bound();
    let mut buf = [0; 100];
    for i in 0..100u8 {
        client.send_to(&[i; 64], addr).unwrap();
        assert_eq!(client.recv_from(&mut buf).unwrap(), (64, addr));
        assert_eq!(buf[..64], [i; 64]);
    }
    // An empty datagram is one.
    client.send_to(&[], addr).unwrap();
    assert_eq!(client.recv_from(&mut buf).unwrap(), (0, addr));
    echo();
}

pub fn udp_connected(env: Env) {
    let (a, b) = pair();
    assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
    let (stranger, _) = bound();
    assert_eq!(stranger.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    stranger.send_to(b"not from the peer", a.local_addr().unwrap()).unwrap();
    let sender = env.spawn(move || {
        assert_eq!(b.send(b"first, and too long").unwrap(), 19);
        b.send(b"second").unwrap();
    });
    let mut buf = [0; 5];
    // Peeked at, still there; what has no room is lost, and not the beginning of the next one.
    assert_eq!(a.peek(&mut buf).unwrap(), 5);
    assert_eq!(a.peek_from(&mut buf).unwrap().0, 5);
    assert_eq!(a.recv(&mut buf).unwrap(), 5);
    assert_eq!(&buf, b"first");
    assert_eq!(a.recv(&mut buf).unwrap(), 5);
    assert_eq!(&buf, b"secon");
    sender();
}

pub fn udp_timeouts(_: Env) {
    let (a, _) = bound();
    assert_eq!(
        a.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        a.set_write_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    a.set_read_timeout(Some(SHORT)).unwrap();
    a.set_write_timeout(Some(SHORT)).unwrap();
    assert_eq!(a.read_timeout().unwrap(), Some(SHORT));
    assert_eq!(a.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(a.peek_from(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let std = std::net::UdpSocket::from(a);
    assert!(std.read_timeout().unwrap().is_some());
    let again = UdpSocket::from(std);
    assert!(again.read_timeout().unwrap().is_some() && again.write_timeout().unwrap().is_some());
    assert_eq!(
        again.try_clone().unwrap().recv(&mut [0]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
}

pub fn udp_nonblocking_and_conversion(env: Env) {
    fn nonblocking(fd: impl AsFd) -> bool {
        // SAFETY: no pointer.
        unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }
    let (a, b) = pair();
    a.set_nonblocking(true).unwrap();
    let clone = a.try_clone().unwrap();
    assert_eq!(clone.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    clone.set_nonblocking(false).unwrap();
    let receiver = env.spawn(move || assert_eq!(a.recv(&mut [0; 9]).unwrap(), 4));
    b.send(b"four").unwrap();
    receiver();

    let std = std::net::UdpSocket::from(clone);
    assert!(!nonblocking(&std));
    let ours = UdpSocket::from(std);
    ours.set_nonblocking(true).unwrap();
    let shown = format!("{ours:?}");
    let std = std::net::UdpSocket::from(ours);
    assert!(nonblocking(&std));
    assert_eq!(shown, format!("{std:?}"));
    // SAFETY: from into_raw_fd just now.
    let ours = unsafe { UdpSocket::from_raw_fd(UdpSocket::from(std).into_raw_fd()) };
    assert_eq!(ours.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let fd = OwnedFd::from(ours);
    // SAFETY: no pointer.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

pub fn udp_bad_addresses(_: Env) {
    let none: &[SocketAddr] = &[];
    assert_eq!(UdpSocket::bind(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    let (a, addr) = bound();
    assert_eq!(a.send_to(b"x", none).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(a.connect(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    let e = UdpSocket::bind(addr).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AddrInUse);
    assert!(e.to_string().contains(&addr.to_string()), "{e}");
    // The first one that can be had.
    let second = UdpSocket::bind(&[addr, SocketAddr::from(LOCAL)][..]).unwrap();
    assert_ne!(second.local_addr().unwrap(), addr);
    // By name; a look-up for each call.
    second.connect(("localhost", addr.port())).unwrap();
    // Longer than a datagram can be.
    assert_eq!(a.send_to(&[0; 1 << 16], addr).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    assert!(a.send(b"x").is_err(), "it has no peer");
}

/// Nobody is there: the peer's machine says so, and the next call of a connected socket hears it.
pub fn udp_refused(_: Env) {
    let (a, b) = pair();
    drop(b);
    a.send(b"x").unwrap();
    assert_eq!(a.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // Said once; the socket can still be used.
    a.set_nonblocking(true).unwrap();
    assert_eq!(a.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(a.take_error().unwrap().is_none());
}

pub fn udp_options(_: Env) {
    let (a, _) = bound();
    a.set_broadcast(true).unwrap();
    assert!(a.broadcast().unwrap());
    a.set_ttl(42).unwrap();
    assert_eq!(a.ttl().unwrap(), 42);
    a.set_multicast_loop_v4(false).unwrap();
    assert!(!a.multicast_loop_v4().unwrap());
    a.set_multicast_ttl_v4(7).unwrap();
    assert_eq!(a.multicast_ttl_v4().unwrap(), 7);
    // Not a group.
    assert!(a.join_multicast_v4(&Ipv4Addr::LOCALHOST, &Ipv4Addr::UNSPECIFIED).is_err());
    if let Ok(v6) = UdpSocket::bind("[::1]:0") {
        v6.set_multicast_loop_v6(false).unwrap();
        assert!(!v6.multicast_loop_v6().unwrap());
    }
}

pub fn udp_multicast(env: Env) {
    let group = Ipv4Addr::new(239, 255, 77, 1);
    let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    receiver.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let (sender, _) = bound();
    let waiting = env.spawn(move || {
        assert_eq!(receiver.recv(&mut [0; 9]).unwrap(), 5);
        receiver.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
    });
    sender.set_multicast_loop_v4(true).unwrap();
    // By loopback's own address: bound to it.
    sender.send_to(b"group", (group, port)).unwrap();
    waiting();
}

/// Each datagram goes to one of those that wait, and every one of them wakes up in the end.
pub fn udp_many_receivers(env: Env) {
    const RECEIVERS: usize = 8;
    let (a, b) = pair();
    let a = Arc::new(a);
    let receivers: Vec<_> = (0..RECEIVERS)
        .map(|_| {
            let a = a.clone();
            env.spawn(move || assert_eq!(a.recv(&mut [0; 9]).unwrap(), 3))
        })
        .collect();
    for _ in 0..RECEIVERS {
        b.send(b"one").unwrap();
    }
    for receiver in receivers {
        receiver();
    }
}
