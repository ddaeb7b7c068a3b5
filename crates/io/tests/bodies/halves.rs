//! Streams in halves; options.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use kumihimo_io::net::{Keepalive, SocketBuilder, TcpStream, UdpSocket, UnixStream};

use super::Env;
use super::tcp::{LOCAL, connected, listen};

pub fn lent_halves(env: Env) {
    let (stream, mut other) = connected(env);
    let echo = env.spawn(move || {
        let mut buf = [0; 8];
        other.read_exact(&mut buf).unwrap();
        other.write_all(&buf).unwrap();
        // The end of a lent half does nothing.
        assert_eq!(other.read(&mut buf).unwrap(), 1);
    });
    {
        let (mut reader, mut writer) = stream.split();
        assert_eq!(
            writer.write_vectored(&[IoSlice::new(b"half"), IoSlice::new(b"half")]).unwrap(),
            8
        );
        let (mut a, mut b) = ([0; 3], [0; 5]);
        assert_eq!(
            reader.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap(),
            8
        );
        assert_eq!((&a, &b), (b"hal", b"fhalf"));
        writer.flush().unwrap();
        assert_eq!(reader.as_ref().local_addr().unwrap(), writer.as_ref().local_addr().unwrap());
    }
    (&stream).write_all(b"!").unwrap();
    echo();
}

/// The writing half ends its direction when it is dropped, and only that one.
pub fn owned_halves(env: Env) {
    let (stream, mut other) = connected(env);
    let (mut reader, mut writer) = stream.into_split();
    let writing = env.spawn(move || writer.write_all(b"all there is").unwrap());
    let mut all = String::new();
    other.read_to_string(&mut all).unwrap();
    assert_eq!(all, "all there is");
    writing();
    other.write_all(b"answer").unwrap();
    drop(other);
    all.clear();
    reader.read_to_string(&mut all).unwrap();
    assert_eq!(all, "answer");
}

pub fn halves_become_one(env: Env) {
    let (stream, mut other) = UnixStream::pair().unwrap();
    let (reader, writer) = stream.into_split();
    let (strange, _) = UnixStream::pair().unwrap().0.into_split();
    let e = strange.reunite(writer).unwrap_err();
    assert_eq!(e.to_string(), "these halves are not of one stream");
    let mut whole = reader.reunite(e.1).unwrap();
    whole.write_all(b"whole").unwrap();
    let mut buf = [0; 5];
    other.read_exact(&mut buf).unwrap();

    let (reader, writer) = whole.into_split();
    writer.keep_open();
    let waiting = env.spawn(move || {
        let mut buf = [0; 5];
        other.read_exact(&mut buf).unwrap();
        assert_eq!(other.read(&mut buf).unwrap(), 0);
    });
    reader.as_ref().try_clone().unwrap().write_all(b"open!").unwrap();
    drop(reader);
    waiting();
}

pub fn keepalive_and_linger(env: Env) {
    let (stream, other) = connected(env);
    assert_eq!(stream.keepalive().unwrap(), None);
    let wanted =
        Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), count: 3 };
    stream.set_keepalive(Some(wanted)).unwrap();
    assert_eq!(stream.keepalive().unwrap(), Some(wanted));
    stream.set_keepalive(None).unwrap();
    assert_eq!(stream.keepalive().unwrap(), None);
    let none = Keepalive { idle: Duration::ZERO, ..wanted };
    assert_eq!(stream.set_keepalive(Some(none)).unwrap_err().kind(), ErrorKind::InvalidInput);

    assert_eq!(stream.linger().unwrap(), None);
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!(stream.linger().unwrap(), Some(Duration::ZERO));
    drop(stream);
    assert_eq!((&other).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

pub fn buffer_sizes(env: Env) {
    let (stream, _other) = connected(env);
    stream.set_send_buffer_size(16 << 10).unwrap();
    assert_eq!(stream.send_buffer_size().unwrap(), 32 << 10);
    stream.set_recv_buffer_size(16 << 10).unwrap();
    assert_eq!(stream.recv_buffer_size().unwrap(), 32 << 10);
    let small = SocketBuilder::new().recv_buffer_size(8 << 10).send_buffer_size(8 << 10);
    let listener = small.listen(LOCAL).unwrap();
    assert_eq!(listener.recv_buffer_size().unwrap(), 16 << 10);
    let stream = small.connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(stream.send_buffer_size().unwrap(), 16 << 10);
    assert_eq!(listener.accept().unwrap().0.recv_buffer_size().unwrap(), 16 << 10);
    assert_eq!(small.udp(LOCAL).unwrap().recv_buffer_size().unwrap(), 16 << 10);
}

pub fn shared_ports(_: Env) {
    let shared = SocketBuilder::new().reuse_port(true);
    let first = shared.listen(LOCAL).unwrap();
    let at = first.local_addr().unwrap();
    let second = shared.listen(at).unwrap();
    assert_eq!(SocketBuilder::new().listen(at).unwrap_err().kind(), ErrorKind::AddrInUse);
    for listener in [&first, &second] {
        listener.set_nonblocking(true).unwrap();
    }
    let streams: Vec<_> = (0..50).map(|_| TcpStream::connect(at).unwrap()).collect();
    let accepted = |listener: &kumihimo_io::net::TcpListener| {
        listener.incoming().map_while(Result::ok).count()
    };
    assert_eq!(accepted(&first) + accepted(&second), streams.len());

    let first = shared.udp(LOCAL).unwrap();
    shared.udp(first.local_addr().unwrap()).unwrap();
    assert_eq!(
        UdpSocket::bind(first.local_addr().unwrap()).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
}

pub fn built_sockets(env: Env) {
    let (listener, at) = listen();
    // From an address of its own.
    let from = SocketAddr::from(([127, 0, 0, 2], 0));
    let client = env.spawn(move || {
        let stream = SocketBuilder::new().local_addr(from).connect(at).unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), from.ip());
    });
    assert_eq!(listener.accept().unwrap().1.ip(), from.ip());
    client();
    let e = SocketBuilder::new().local_addr(at).connect(at).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AddrInUse);
    assert!(e.to_string().contains(&at.to_string()), "{e}");
    // A listener made so waits like any other, and refuses what does not fit its backlog.
    let listener = SocketBuilder::new().backlog(5).listen(LOCAL).unwrap();
    let at = listener.local_addr().unwrap();
    let client = env.spawn(move || drop(TcpStream::connect(at).unwrap()));
    listener.accept().unwrap();
    client();
    // IPv6 alone, or with IPv4; nothing to test without IPv6.
    if let Ok(both) = SocketBuilder::new().only_v6(false).listen((Ipv6Addr::UNSPECIFIED, 0)) {
        let port = both.local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        let only = SocketBuilder::new().only_v6(true).listen((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        assert!(socket2::SockRef::from(&only).only_v6().unwrap());
    }
}

pub fn peer_credentials(_: Env) {
    let (a, _b) = UnixStream::pair().unwrap();
    let cred = a.peer_cred().unwrap();
    assert_eq!(cred.pid, Some(std::process::id() as i32));
    // SAFETY: no pointers.
    assert_eq!((cred.uid, cred.gid), unsafe { (libc::geteuid(), libc::getegid()) });
}
