//! Peers that do what they like, and descriptors misused. Each leaves as many sockets open as there
//! were.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use kumihimo_io::net::{
    SocketBuilder, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use kumihimo_runtime::thread;

use super::Env;
use super::tcp::{LOCAL, SHORT, connected, listen};
use super::unix::Place;

/// Each byte comes in time, the line never does: a timeout a read does not help, a deadline for all
/// of it does.
pub fn a_trickle(env: Env) {
    let (mut stream, mut other) = connected(env);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let trickle = env.spawn(move || {
        while stopped
            .recv_timeout(SHORT / 4)
            .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            if other.write_all(b"x").is_err() {
                break;
            }
        }
    });
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut line = Vec::new();
    let e = thread::scope_until(Instant::now() + 4 * SHORT, |_| {
        loop {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(n) => line.extend_from_slice(&byte[..n]),
                Err(e) => break e,
            }
        }
    });
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    assert!(line.iter().all(|b| *b == b'x'));
    drop(stop);
    drop(stream);
    trickle();
}

/// A peer that never reads holds the writer up until its timeout, or the deadline; what could be
/// sent is counted.
pub fn a_peer_that_never_reads(env: Env) {
    let (mut stream, mut other) = connected(env);
    stream.set_write_timeout(Some(SHORT)).unwrap();
    let mut sent = 0;
    let e = loop {
        match stream.write(&[7; 10_000]) {
            Ok(n) => sent += n,
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), ErrorKind::WouldBlock);
    stream.set_write_timeout(None).unwrap();
    // Its kernel may make room once more.
    let e = thread::scope_until(Instant::now() + SHORT, |_| {
        loop {
            match stream.write(&[7; 10_000]) {
                Ok(n) => sent += n,
                Err(e) => break e,
            }
        }
    });
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    // It was not lost, and nothing else was sent.
    drop(stream);
    let mut all = Vec::new();
    other.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), sent);
}

/// The other side has said all that it will: it is still answered.
pub fn a_half_closed_peer(env: Env) {
    let (mut stream, mut other) = connected(env);
    let server = env.spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        for _ in 0..3 {
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the end stays");
        }
        stream.write_all(&all).unwrap();
    });
    other.write_all(b"question").unwrap();
    other.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    other.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"question");
    server();
}

/// In a C program, or where somebody has set SIGPIPE to its default, it would end the process.
pub fn no_signal_for_a_broken_pipe(env: Env) {
    // SAFETY: no handler. The process is this test's own, and nothing in it writes to pipes.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let broken = |e: std::io::Error| {
        assert!(matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{e}")
    };
    let (mut stream, other) = connected(env);
    drop(other);
    broken(loop {
        if let Err(e) = stream.write(b"x") {
            break e;
        }
    });
    broken(stream.write_vectored(&[IoSlice::new(b"x")]).unwrap_err());
    let (mut stream, other) = UnixStream::pair().unwrap();
    drop(other);
    broken(stream.write(b"x").unwrap_err());
    broken(stream.write_vectored(&[IoSlice::new(b"x")]).unwrap_err());
    let (a, b) = UnixDatagram::pair().unwrap();
    a.shutdown(Shutdown::Write).unwrap();
    broken(a.send(b"x").unwrap_err());
    drop(b);
    assert!(a.send(b"x").is_err());
    // SAFETY: as it was.
    unsafe { libc::signal(libc::SIGPIPE, before) };
}

/// The error names what could not be had and what to do; it keeps its kind.
pub fn addresses_in_use(_: Env) {
    let (_listener, at) = listen();
    let udp = UdpSocket::bind(LOCAL).unwrap();
    let place = Place::new();
    let _unix = UnixListener::bind(&place.0).unwrap();
    let path = place.0.display().to_string();
    for (e, name) in [
        (TcpListener::bind(at).unwrap_err(), at.to_string()),
        (SocketBuilder::new().listen(at).unwrap_err(), at.to_string()),
        (
            UdpSocket::bind(udp.local_addr().unwrap()).unwrap_err(),
            udp.local_addr().unwrap().to_string(),
        ),
        (UnixListener::bind(&place.0).unwrap_err(), path.clone()),
        (UnixDatagram::bind(&place.0).unwrap_err(), path.clone()),
    ] {
        assert_eq!(e.kind(), ErrorKind::AddrInUse);
        assert!(e.to_string().contains(&format!("cannot bind {name}: ")), "{e}");
        assert!(e.to_string().contains("choose another address"), "{e}");
    }
    // TEST-NET-1: nobody's.
    let e = UdpSocket::bind("192.0.2.1:0").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AddrNotAvailable);
    assert!(e.to_string().contains("192.0.2.1:0"), "{e}");
}

/// What has to wait fails at once; what need not, does not care.
pub fn deadlines_in_the_past(env: Env) {
    let (stream, mut other) = connected(env);
    let (listener, at) = listen();
    let (udp, peer) = super::udp::pair();
    let (datagram, full) = UnixDatagram::pair().unwrap();
    let place = Place::new();
    let receiver = UnixDatagram::bind(&place.0).unwrap();
    let waiting = TcpStream::connect(at).unwrap();
    other.write_all(b"here").unwrap();
    stream.peek(&mut [0]).unwrap();
    peer.send(b"here").unwrap();
    udp.peek(&mut [0]).unwrap();
    let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
    thread::scope_until(past, |_| {
        let late = |e: std::io::Error| {
            assert_eq!(e.kind(), ErrorKind::TimedOut);
            assert!(e.to_string().contains("deadline of an enclosing scope"), "{e}");
        };
        let buf = &mut [0; 100];
        assert_eq!((&stream).read(buf).unwrap(), 4);
        late((&stream).read(buf).unwrap_err());
        assert_eq!(udp.recv(buf).unwrap(), 4);
        late(udp.recv(buf).unwrap_err());
        late(udp.recv_from(buf).unwrap_err());
        late(udp.peek(buf).unwrap_err());
        assert_eq!(udp.send(b"x").unwrap(), 1);
        listener.accept().unwrap();
        late(listener.accept().unwrap_err());
        late(datagram.recv(buf).unwrap_err());
        let until_it_fails = |send: &dyn Fn() -> std::io::Result<usize>| loop {
            if let Err(e) = send() {
                break e;
            }
        };
        late(until_it_fails(&|| full.send(&[0; 1000])));
        let nameless = UnixDatagram::unbound().unwrap();
        late(until_it_fails(&|| nameless.send_to(&[0; 1000], &place.0)));
        late(until_it_fails(&|| (&stream).write(&[0; 10_000])));
        // To oneself it need not wait, or does for a moment.
        if let Err(e) = TcpStream::connect(at) {
            late(e);
        }
        drop(receiver);
    });
    drop(waiting);
}

/// Types keep a descriptor open while it is waited for. A clone's end is its own; `shutdown` ends
/// the waits of all.
pub fn closing_while_another_waits(env: Env) {
    let (stream, _other) = connected(env);
    let clone = stream.try_clone().unwrap();
    let reader = env.spawn(move || {
        let mut byte = [0];
        assert_eq!(
            (&clone).read(&mut byte).unwrap(),
            0,
            "ended by shutdown, not by the other handle's end"
        );
    });
    stream.try_clone().unwrap();
    stream.shutdown(Shutdown::Read).unwrap();
    drop(stream);
    reader();

    let (a, _b) = UnixDatagram::pair().unwrap();
    let clone = a.try_clone().unwrap();
    let receiver = env.spawn(move || assert_eq!(clone.recv(&mut [0]).unwrap(), 0));
    drop(a.try_clone().unwrap());
    a.shutdown(Shutdown::Both).unwrap();
    drop(a);
    receiver();
}

/// `close` on the raw descriptor, which the types cannot rule out: the wait hears of nothing, and
/// ends by its deadline.
pub fn descriptor_closed_by_other_code_fails_cleanly(env: Env) {
    let (stream, _other) = connected(env);
    stream.set_read_timeout(Some(4 * SHORT)).unwrap();
    let fd = stream.as_raw_fd();
    let null = std::fs::File::open("/dev/null").unwrap();
    let reader = env.spawn(move || {
        let e = (&stream).read(&mut [0]).unwrap_err();
        // Whether it waited already, or looked again when the number was another file's.
        assert!(
            e.kind() == ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ENOTSOCK),
            "{e}"
        );
    });
    // SAFETY: the number is another file's from one moment to the next, never nobody's; `stream`
    // closes that.
    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), fd) }, fd);
    reader();
    // All goes on.
    let (mut stream, mut other) = connected(env);
    other.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

/// `From<OwnedFd>` believes its caller, as in std: each call then says what is wrong.
pub fn descriptors_of_another_kind(_: Env) {
    let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let is = |e: std::io::Error, n| assert_eq!(e.raw_os_error(), Some(n), "{e}");
    is(TcpStream::from(file()).read(&mut [0]).unwrap_err(), libc::ENOTSOCK);
    is(TcpStream::from(file()).write(&[0]).unwrap_err(), libc::ENOTSOCK);
    is(UnixStream::from(file()).read(&mut [0]).unwrap_err(), libc::ENOTSOCK);
    is(TcpListener::from(file()).accept().unwrap_err(), libc::ENOTSOCK);
    is(UdpSocket::from(file()).recv(&mut [0]).unwrap_err(), libc::ENOTSOCK);
    is(UnixDatagram::from(file()).send_to(b"x", "/nowhere").unwrap_err(), libc::ENOTSOCK);
    // A socket, but another one.
    let (listener, _) = listen();
    let fd = listener.as_fd().try_clone_to_owned().unwrap();
    is(TcpStream::from(fd).read(&mut [0]).unwrap_err(), libc::ENOTCONN);
    let (a, _b) = UnixStream::pair().unwrap();
    is(TcpListener::from(OwnedFd::from(a)).accept().unwrap_err(), libc::EINVAL);
}
