//! UNIX datagrams.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::time::Duration;

use kumihimo_io::net::UnixDatagram;
use kumihimo_io::net::unix::SocketAddr;

use super::Env;
use super::tcp::SHORT;
use super::unix::Place;

pub fn datagram_pair(env: Env) {
    let (a, b) = UnixDatagram::pair().unwrap();
    assert!(a.local_addr().unwrap().is_unnamed());
    let echo = env.spawn(move || {
        let mut buf = [0; 100];
        while let n @ 1.. = b.recv(&mut buf).unwrap() {
            b.send(&buf[..n]).unwrap();
        }
    });
    let mut buf = [0; 100];
    for i in 0..100u8 {
        assert_eq!(a.send(&[i; 64]).unwrap(), 64);
        assert_eq!(a.recv(&mut buf).unwrap(), 64);
        assert_eq!(buf[..64], [i; 64]);
    }
    a.send(&[]).unwrap();
    echo();
}

pub fn datagrams_by_path(env: Env) {
    let (place, own) = (Place::new(), Place::new());
    let server = UnixDatagram::bind(&place.0).unwrap();
    let e = UnixDatagram::bind(&place.0).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AddrInUse);
    assert!(e.to_string().contains(&*place.0.to_string_lossy()), "{e}");
    let client = UnixDatagram::bind(&own.0).unwrap();
    let path = place.0.clone();
    let sender = env.spawn(move || {
        client.send_to(b"by path", &path).unwrap();
        client.connect(&path).unwrap();
        assert_eq!(client.peer_addr().unwrap().as_pathname(), Some(&*path));
        client.send(b"connected").unwrap();
        let nameless = UnixDatagram::unbound().unwrap();
        nameless.send_to(b"nameless", &path).unwrap();
    });
    let mut buf = [0; 4];
    let (n, from) = server.peek_from(&mut buf).unwrap();
    assert_eq!((n, from.as_pathname()), (4, Some(&*own.0)));
    let mut buf = [0; 20];
    assert_eq!(server.peek(&mut buf).unwrap(), 7);
    let (n, from) = server.recv_from(&mut buf).unwrap();
    assert_eq!((&buf[..n], from.as_pathname()), (&b"by path"[..], Some(&*own.0)));
    assert_eq!(server.recv(&mut buf).unwrap(), 9);
    assert!(server.peek_from(&mut buf).unwrap().1.is_unnamed());
    assert!(server.recv_from(&mut buf).unwrap().1.is_unnamed());
    sender();
}

pub fn datagrams_by_abstract_name(_: Env) {
    let place = Place::new();
    let addr = SocketAddr::from_abstract_name(place.0.as_os_str().as_encoded_bytes()).unwrap();
    let server = UnixDatagram::bind_addr(&addr).unwrap();
    assert_eq!(UnixDatagram::bind_addr(&addr).unwrap_err().kind(), ErrorKind::AddrInUse);
    let own =
        SocketAddr::from_abstract_name([b"o", place.0.as_os_str().as_encoded_bytes()].concat())
            .unwrap();
    let client = UnixDatagram::bind_addr(&own).unwrap();
    client.send_to_addr(b"x", &addr).unwrap();
    assert_eq!(server.peek_from(&mut [0]).unwrap().1.as_abstract_name(), own.as_abstract_name());
    client.connect_addr(&addr).unwrap();
    client.send(b"y").unwrap();
    assert_eq!(server.recv_from(&mut [0]).unwrap().1.as_abstract_name(), own.as_abstract_name());
}

/// A queue holds so many only (net.unix.max_dgram_qlen): senders wait for room, whether connected
/// or not, and nothing is lost.
pub fn datagrams_wait_for_room(env: Env) {
    const EACH: usize = 600;
    let place = Place::new();
    let server = UnixDatagram::bind(&place.0).unwrap();
    let senders: Vec<_> = (0..4)
        .map(|i| {
            let path = place.0.clone();
            env.spawn(move || {
                let socket = UnixDatagram::unbound().unwrap();
                if i % 2 == 0 {
                    socket.connect(&path).unwrap();
                }
                for _ in 0..EACH {
                    let sent = if i % 2 == 0 {
                        socket.send(&[i; 2000])
                    } else {
                        socket.send_to(&[i; 2000], &path)
                    };
                    assert_eq!(sent.unwrap(), 2000);
                }
            })
        })
        .collect();
    let mut got = [0; 4];
    for _ in 0..4 * EACH {
        let mut buf = [0; 2000];
        assert_eq!(server.recv(&mut buf).unwrap(), 2000);
        got[usize::from(buf[0])] += 1;
    }
    assert_eq!(got, [EACH; 4]);
    for sender in senders {
        sender();
    }
}

pub fn datagram_timeouts(_: Env) {
    let place = Place::new();
    let server = UnixDatagram::bind(&place.0).unwrap();
    server.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(server.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(
        server.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    for connect in [true, false] {
        let client = UnixDatagram::unbound().unwrap();
        client.set_write_timeout(Some(SHORT)).unwrap();
        if connect {
            client.connect(&place.0).unwrap();
        }
        let send = || if connect { client.send(b"x") } else { client.send_to(b"x", &place.0) };
        let e = loop {
            if let Err(e) = send() {
                break e;
            }
        };
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        // At once, if told so.
        client.set_nonblocking(true).unwrap();
        assert_eq!(send().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    let std = std::os::unix::net::UnixDatagram::from(server);
    assert!(std.read_timeout().unwrap().is_some());
}

pub fn datagram_shutdown(env: Env) {
    let (a, b) = UnixDatagram::pair().unwrap();
    let clone = a.try_clone().unwrap();
    let receiver = env.spawn(move || assert_eq!(a.recv(&mut [0]).unwrap(), 0));
    clone.shutdown(Shutdown::Read).unwrap();
    receiver();
    assert_eq!(b.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let place = Place::new();
    let lone = UnixDatagram::bind(&place.0).unwrap();
    assert_eq!(lone.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(lone.send_to(b"x", "/nowhere/at/all").unwrap_err().kind(), ErrorKind::NotFound);
    drop(lone);
    assert_eq!(b.send_to(b"x", &place.0).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
