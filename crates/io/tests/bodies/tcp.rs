//! TCP as std has it.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use kumihimo_io::net::{TcpListener, TcpStream};

use super::Env;

pub const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// Long enough to wait at all, short enough for a test.
pub const SHORT: Duration = Duration::from_millis(20);

pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Two ends of one connection: the one that connected, the one that was accepted.
pub fn connected(env: Env) -> (TcpStream, TcpStream) {
    let (listener, addr) = listen();
    let (give, take) = std::sync::mpsc::channel();
    let client = env.spawn(move || give.send(TcpStream::connect(addr).unwrap()).unwrap());
    let (served, peer) = listener.accept().unwrap();
    client();
    let stream = take.recv().unwrap();
    assert_eq!(stream.local_addr().unwrap(), peer);
    assert_eq!(stream.peer_addr().unwrap(), addr);
    assert_eq!(served.local_addr().unwrap(), addr);
    assert_eq!(served.peer_addr().unwrap(), peer);
    (stream, served)
}

/// An address that refuses: bound, so that nobody else gets it, and not listening.
pub fn refusing() -> (OwnedFd, SocketAddr) {
    // SAFETY: no pointers; the descriptor is fresh.
    let fd = unsafe {
        OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))
    };
    // SAFETY: all-zero is a valid sockaddr_in.
    let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    raw.sin_family = libc::AF_INET as u16;
    raw.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    // SAFETY: `raw` is a live sockaddr_in of that length.
    let bound =
        unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), size_of_val(&raw) as u32) };
    assert_eq!(bound, 0);
    let socket = std::net::TcpListener::from(fd);
    let addr = socket.local_addr().unwrap();
    (socket.into(), addr)
}

fn echo_on(env: Env, listener: TcpListener) {
    let addr = listener.local_addr().unwrap();
    let server = env.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buf = [0; 100];
        loop {
            match stream.read(&mut buf).unwrap() {
                0 => break,
                n => stream.write_all(&buf[..n]).unwrap(),
            }
        }
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    let mut buf = [0; 64];
    for i in 0..100u8 {
        stream.write_all(&[i; 64]).unwrap();
        stream.read_exact(&mut buf).unwrap();
        assert_eq!(buf, [i; 64]);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut buf).unwrap(), 0);
    server();
}

pub fn echo(env: Env) {
    echo_on(env, listen().0);
}

pub fn echo_v6(env: Env) {
    // Machines without IPv6 have nothing to test.
    if let Ok(listener) = TcpListener::bind("[::1]:0") {
        echo_on(env, listener);
    }
}

pub fn clients_in_turn(env: Env) {
    let (listener, addr) = listen();
    let clients = env.spawn(move || {
        for i in 0..10 {
            TcpStream::connect(addr).unwrap().write_all(&[i]).unwrap();
        }
    });
    for i in 0..10 {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        assert_eq!(all, [i]);
    }
    clients();
}

pub fn connect_refused(_: Env) {
    let (_keep, addr) = refusing();
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let long = Duration::from_secs(60);
    assert_eq!(
        TcpStream::connect_timeout(&addr, long).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

pub fn connect_to_nothing(_: Env) {
    let none: &[SocketAddr] = &[];
    assert_eq!(TcpStream::connect(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(TcpListener::bind(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(TcpStream::connect("no port").unwrap_err().kind(), ErrorKind::InvalidInput);
    let (_listener, addr) = listen();
    assert_eq!(
        TcpStream::connect_timeout(&addr, Duration::ZERO).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(TcpListener::bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
}

pub fn second_address_serves(_: Env) {
    let (_keep, dead) = refusing();
    let (_listener, addr) = listen();
    let stream = TcpStream::connect(&[dead, addr][..]).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addr);
}

pub fn names_are_resolved(_: Env) {
    let (_listener, addr) = listen();
    for stream in [
        TcpStream::connect(("127.0.0.1", addr.port())),
        TcpStream::connect(format!("127.0.0.1:{}", addr.port())),
        TcpStream::connect(&*format!("127.0.0.1:{}", addr.port())),
        TcpStream::connect((addr.ip(), addr.port())),
        TcpStream::connect(("localhost", addr.port())),
        TcpStream::connect_timeout(&addr, Duration::from_secs(60)),
    ] {
        assert_eq!(stream.unwrap().peer_addr().unwrap(), addr);
    }
}

pub fn timeouts_are_checked(env: Env) {
    let (stream, _other) = connected(env);
    assert_eq!(stream.read_timeout().unwrap(), None);
    assert_eq!(stream.write_timeout().unwrap(), None);
    assert_eq!(
        stream.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        stream.set_write_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(stream.read_timeout().unwrap(), None);

    let clone = stream.try_clone().unwrap();
    let d = Duration::new(15, 410_000_000);
    stream.set_read_timeout(Some(d)).unwrap();
    clone.set_write_timeout(Some(2 * d)).unwrap();
    assert_eq!(clone.read_timeout().unwrap(), Some(d));
    assert_eq!(stream.write_timeout().unwrap(), Some(2 * d));
    stream.set_read_timeout(None).unwrap();
    assert_eq!(clone.read_timeout().unwrap(), None);
    stream.set_read_timeout(Some(Duration::MAX)).unwrap();
    assert!(stream.read_timeout().unwrap().is_some());
}

pub fn read_times_out(env: Env) {
    let (mut stream, mut other) = connected(env);
    stream.set_read_timeout(Some(SHORT)).unwrap();
    let mut buf = [0; 10];
    for _ in 0..2 {
        assert_eq!(stream.read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(stream.peek(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    // Timing out loses nothing.
    other.write_all(b"late").unwrap();
    stream.set_read_timeout(None).unwrap();
    stream.read_exact(&mut buf[..4]).unwrap();
    assert_eq!(&buf[..4], b"late");
}

pub fn write_times_out(env: Env) {
    let (mut stream, mut other) = connected(env);
    stream.set_write_timeout(Some(SHORT)).unwrap();
    let buf = vec![7; 1 << 16];
    let mut sent = 0;
    let e = loop {
        match stream.write(&buf) {
            Ok(n) => sent += n,
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), ErrorKind::WouldBlock);
    // Once there is room, it goes on.
    let reader = env.spawn(move || {
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), sent + buf.len());
        assert!(all.iter().all(|&b| b == 7));
    });
    stream.set_write_timeout(None).unwrap();
    stream.write_all(&[7; 1 << 16]).unwrap();
    drop(stream);
    reader();
}

pub fn timeouts_survive_conversion(env: Env) {
    let (stream, _other) = connected(env);
    let d = Duration::from_secs(8);
    stream.set_read_timeout(Some(d)).unwrap();
    stream.set_nonblocking(true).unwrap();
    let std = std::net::TcpStream::from(stream);
    assert_eq!(std.read_timeout().unwrap(), Some(d));
    assert_eq!(std.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    std.set_write_timeout(Some(2 * d)).unwrap();
    let mut ours = TcpStream::from(std);
    assert_eq!(ours.read_timeout().unwrap(), Some(d));
    assert_eq!(ours.write_timeout().unwrap(), Some(2 * d));
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

pub fn peek_leaves_it_there(env: Env) {
    let (mut stream, mut other) = connected(env);
    let writer = env.spawn(move || other.write_all(b"xyz").unwrap());
    let mut buf = [0; 8];
    let n = stream.peek(&mut buf).unwrap();
    assert_eq!(&buf[..n], &b"xyz"[..n]);
    writer();
    assert_eq!(stream.peek(&mut buf).unwrap(), 3);
    assert_eq!(stream.peek(&mut buf[..1]).unwrap(), 1);
    stream.read_exact(&mut buf[..2]).unwrap();
    assert_eq!(&buf[..2], b"xy");
    assert_eq!(stream.peek(&mut buf).unwrap(), 1);
    assert_eq!(buf[0], b'z');
    assert_eq!(stream.read(&mut buf).unwrap(), 1);
    assert_eq!(stream.peek(&mut buf).unwrap(), 0);
    assert_eq!(stream.read(&mut buf).unwrap(), 0);
}

pub fn nonblocking_is_shared(env: Env) {
    let (mut stream, mut other) = connected(env);
    let mut clone = stream.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut buf = [0; 4];
    for s in [&mut stream, &mut clone] {
        assert_eq!(s.read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(s.peek(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    clone.set_nonblocking(false).unwrap();
    let reader = env.spawn(move || {
        let mut buf = [0; 4];
        stream.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"four");
    });
    other.write_all(b"four").unwrap();
    reader();

    let (listener, addr) = listen();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(listener.try_clone().unwrap().accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(false).unwrap();
    let client = env.spawn(move || drop(TcpStream::connect(addr).unwrap()));
    listener.accept().unwrap();
    client();
}

pub fn shutdown_ends_one_direction(env: Env) {
    let (mut stream, mut other) = connected(env);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
    other.write_all(b"still").unwrap();
    let mut buf = [0; 5];
    stream.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"still");
    other.shutdown(Shutdown::Both).unwrap();
    assert_eq!(stream.read(&mut buf).unwrap(), 0);
}

pub fn shutdown_ends_a_waiting_read(env: Env) {
    let (mut stream, _other) = connected(env);
    let clone = stream.try_clone().unwrap();
    let reader = env.spawn(move || {
        // Whether the read waits already when the shutdown comes, or starts after it: the end of
        // the stream.
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    });
    clone.shutdown(Shutdown::Read).unwrap();
    reader();
}

pub fn read_and_write_through_clones(env: Env) {
    let (stream, mut other) = connected(env);
    let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
    let reading = env.spawn(move || {
        let mut buf = [0; 3];
        reader.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"two");
    });
    writer.write_all(b"one").unwrap();
    let mut buf = [0; 3];
    other.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"one");
    other.write_all(b"two").unwrap();
    reading();
    // By shared reference too, as std allows.
    (&writer).write_all(b"ref").unwrap();
    (&other).read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"ref");
}

pub fn vectored(env: Env) {
    let (mut stream, mut other) = connected(env);
    let n = stream
        .write_vectored(&[IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b"cde")])
        .unwrap();
    assert_eq!(n, 5);
    let (mut a, mut b) = ([0; 3], [0; 4]);
    let mut got = 0;
    while got < 5 {
        // Loopback may in principle deliver in parts; then the later part starts at the front
        // again.
        let n =
            other.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap();
        assert_ne!(n, 0);
        if got == 0 && n == 5 {
            assert_eq!((&a, &b[..2]), (b"abc", &b"de"[..]));
        }
        got += n;
    }
    assert_eq!(other.read_vectored(&mut []).unwrap(), 0);
    // More slices than the kernel takes at once.
    let byte = [IoSlice::new(b"x"); 3000];
    let n = stream.write_vectored(&byte).unwrap();
    assert!((1..=3000).contains(&n));
    other.read_exact(&mut vec![0; n]).unwrap();
}

pub fn options(env: Env) {
    let (stream, _other) = connected(env);
    assert!(!stream.nodelay().unwrap());
    stream.set_nodelay(true).unwrap();
    assert!(stream.nodelay().unwrap());
    assert!(stream.try_clone().unwrap().nodelay().unwrap());
    stream.set_ttl(77).unwrap();
    assert_eq!(stream.ttl().unwrap(), 77);
    assert!(stream.take_error().unwrap().is_none());
    let (listener, _) = listen();
    listener.set_ttl(66).unwrap();
    assert_eq!(listener.ttl().unwrap(), 66);
    assert!(listener.take_error().unwrap().is_none());
}

pub fn closed_on_exec(env: Env) {
    let (listener, _) = listen();
    let (stream, other) = connected(env);
    let clone = stream.try_clone().unwrap();
    for fd in [listener.as_fd(), stream.as_fd(), other.as_fd(), clone.as_fd()] {
        // SAFETY: no pointer.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
}

pub fn debug_as_std(env: Env) {
    let (stream, _other) = connected(env);
    let (listener, _) = listen();
    let shown = (format!("{stream:?}"), format!("{listener:?}"));
    let (stream, listener) =
        (std::net::TcpStream::from(stream), std::net::TcpListener::from(listener));
    assert_eq!(shown, (format!("{stream:?}"), format!("{listener:?}")));
}

pub fn incoming_never_ends(env: Env) {
    let (listener, addr) = listen();
    let clients = env.spawn(move || {
        for i in 0..5 {
            TcpStream::connect(addr).unwrap().write_all(&[i]).unwrap();
        }
    });
    for (i, stream) in (0..5).zip(listener.incoming()) {
        let mut all = Vec::new();
        stream.unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all, [i]);
    }
    clients();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.incoming().next().unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
}

pub fn listener_conversion(env: Env) {
    fn nonblocking(fd: impl AsFd) -> bool {
        // SAFETY: no pointer.
        unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }
    let (listener, addr) = listen();
    let std = std::net::TcpListener::from(listener);
    assert!(!nonblocking(&std));
    let listener = TcpListener::from(std);
    let client = env.spawn(move || drop(TcpStream::connect(addr).unwrap()));
    listener.accept().unwrap();
    client();
    listener.set_nonblocking(true).unwrap();
    let std = std::net::TcpListener::from(listener);
    assert!(nonblocking(&std));
    let listener = TcpListener::from(std);
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

pub fn raw_descriptors(env: Env) {
    let (stream, mut other) = connected(env);
    let raw = stream.as_raw_fd();
    let fd = stream.into_raw_fd();
    assert_eq!(raw, fd);
    // SAFETY: from into_raw_fd just now.
    let mut stream = unsafe { TcpStream::from_raw_fd(fd) };
    stream.write_all(b"1").unwrap();
    let mut stream = TcpStream::from(OwnedFd::from(stream));
    stream.write_all(b"2").unwrap();
    drop(stream);
    let mut all = String::new();
    other.read_to_string(&mut all).unwrap();
    assert_eq!(all, "12");
}

pub fn empty_buffers(env: Env) {
    let (mut stream, mut other) = connected(env);
    // Does not wait, although nothing is there.
    assert_eq!(stream.read(&mut []).unwrap(), 0);
    assert_eq!(stream.write(&[]).unwrap(), 0);
    stream.flush().unwrap();
    other.write_all(b"x").unwrap();
    let mut byte = [0];
    assert_eq!(stream.read(&mut byte).unwrap(), 1);
    assert_eq!(&byte, b"x");
}
