//! TCP where it hurts: ends, resets, urgent data, crowds.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kumihimo_io::net::{TcpListener, TcpStream};

use super::Env;
use super::tcp::{SHORT, connected, listen};

/// A short read takes the last data, and the end of the stream makes no edge of its own if it came
/// with them: the next read must still see it. The two orders of data and end are both likely over
/// this many rounds.
pub fn short_read_then_end(env: Env) {
    let (listener, addr) = listen();
    const ROUNDS: usize = 200;
    let clients = env.spawn(move || {
        for _ in 0..ROUNDS {
            let mut stream = TcpStream::connect(addr).unwrap();
            // The server now waits for data: its descriptor is registered.
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(b"abc").unwrap();
        }
    });
    for _ in 0..ROUNDS {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"!").unwrap();
        let mut buf = [0; 100];
        assert_eq!(stream.read(&mut buf).unwrap(), 3);
        assert_eq!(stream.read(&mut buf).unwrap(), 0);
        assert_eq!(stream.read(&mut buf).unwrap(), 0);
    }
    clients();
}

/// A listener whose backlog is full drops what comes.
pub fn connect_times_out(_: Env) {
    let (listener, addr) = listen();
    // SAFETY: no pointer.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let mut waiting = Vec::new();
    let e = loop {
        match TcpStream::connect_timeout(&addr, SHORT) {
            Ok(stream) => waiting.push(stream),
            Err(e) => break e,
        }
        assert!(waiting.len() < 100, "a backlog of 0 takes ever more connections");
    };
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    // A client that made it into the backlog is served all the same.
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"x").unwrap();
    waiting[0].read_exact(&mut [0]).unwrap();
}

/// The next close sends a reset instead of an end.
fn reset_on_close(socket: impl AsFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: `linger` is live and of that length.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as u32,
        )
    };
    assert_eq!(done, 0);
}

pub fn reset_in_mid_read(env: Env) {
    // Half a message, then the reset, while the reader waits for the rest or before it looks:
    // either way it learns of it.
    for _ in 0..50 {
        let (mut stream, mut other) = connected(env);
        let reader = env.spawn(move || {
            let mut buf = [0; 100];
            let e = stream.read_exact(&mut buf).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::ConnectionReset);
            // Reported once; then the stream is at its end.
            assert_eq!(stream.read(&mut buf).unwrap(), 0);
            assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
        other.write_all(b"half").unwrap();
        reset_on_close(&other);
        drop(other);
        reader();
    }
}

pub fn write_to_the_gone(env: Env) {
    let (mut stream, other) = connected(env);
    drop(other);
    let buf = [0; 1000];
    // The first writes may still be accepted; no signal arrives in any case.
    let e = loop {
        if let Err(e) = stream.write_all(&buf) {
            break e;
        }
    };
    assert!(matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{e:?}");
}

pub fn closing_a_listener(env: Env) {
    let (listener, addr) = listen();
    let clone = listener.try_clone().unwrap();
    drop(listener);
    // One handle is left: it still listens.
    let client = env.spawn(move || drop(TcpStream::connect(addr).unwrap()));
    clone.accept().unwrap();
    client();
    // Connected, never accepted: reset when the last handle goes.
    let mut pending = TcpStream::connect(addr).unwrap();
    drop(clone);
    assert_eq!(pending.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    // Nobody listens there now, unless another program was given the port meanwhile: then that one
    // answers.
    if let Err(e) = TcpStream::connect(addr) {
        assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
    }
}

/// One edge may stand for many connections: all waiters must come to look, not only one.
pub fn many_acceptors(env: Env) {
    const ACCEPTORS: usize = 8;
    const EACH: usize = 10;
    let (listener, addr) = listen();
    let listener = Arc::new(listener);
    let acceptors: Vec<_> = (0..ACCEPTORS)
        .map(|_| {
            let listener = listener.clone();
            env.spawn(move || {
                for _ in 0..EACH {
                    listener.accept().unwrap().0.write_all(b"x").unwrap();
                }
            })
        })
        .collect();
    let streams: Vec<_> =
        (0..ACCEPTORS * EACH).map(|_| TcpStream::connect(addr).unwrap()).collect();
    for mut stream in streams {
        stream.read_exact(&mut [0]).unwrap();
    }
    for acceptor in acceptors {
        acceptor();
    }
}

/// Two readers of one socket, through one handle: every byte goes to one of them, and both see the
/// end.
pub fn two_readers(env: Env) {
    const BYTES: usize = 2000;
    let (stream, mut other) = connected(env);
    let stream = Arc::new(stream);
    let got = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = [1, 7]
        .map(|len| {
            let (stream, got) = (stream.clone(), got.clone());
            env.spawn(move || {
                let mut buf = vec![0; len];
                loop {
                    match (&*stream).read(&mut buf).unwrap() {
                        0 => break,
                        n => got.fetch_add(n, Ordering::Relaxed),
                    };
                }
            })
        })
        .into();
    for i in 0..BYTES / 5 {
        other.write_all(&[i as u8; 5]).unwrap();
    }
    drop(other);
    for reader in readers {
        reader();
    }
    assert_eq!(got.load(Ordering::Relaxed), BYTES);
}

/// A read stops before an urgent byte although more lies behind it: that short read does not mean
/// empty.
pub fn urgent_data(env: Env) {
    let (mut stream, mut other) = connected(env);
    let writer = env.spawn(move || {
        for _ in 0..100 {
            other.read_exact(&mut [0]).unwrap();
            other.write_all(b"ab").unwrap();
            let (of, urgent) = (other.as_raw_fd(), b"!".as_ptr().cast());
            // SAFETY: one byte to read.
            assert_eq!(unsafe { libc::send(of, urgent, 1, libc::MSG_OOB) }, 1);
            other.write_all(b"cd").unwrap();
        }
    });
    for _ in 0..100 {
        stream.write_all(b"?").unwrap();
        let mut all = Vec::new();
        while all.len() < 4 {
            let mut buf = [0; 100];
            let n = stream.read(&mut buf).unwrap();
            assert_ne!(n, 0);
            all.extend_from_slice(&buf[..n]);
        }
        assert_eq!(all, b"abcd");
    }
    writer();
}

/// Both directions at once through clones, more than any buffer holds, in pieces of many sizes.
pub fn bulk_both_ways(env: Env) {
    const BYTES: usize = 4 << 20;
    fn byte(seed: usize, i: usize) -> u8 {
        (i * 31 + i / 251 + seed) as u8
    }
    fn write_all(mut to: TcpStream, seed: usize) {
        let data: Vec<u8> = (0..BYTES).map(|i| byte(seed, i)).collect();
        let (mut rest, mut size) = (&data[..], 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(size.min(rest.len()));
            to.write_all(now).unwrap();
            rest = later;
            size = (size * 3 + 1) % 200_003;
        }
        to.shutdown(Shutdown::Write).unwrap();
    }
    fn read_all(mut from: TcpStream, seed: usize) {
        let (mut at, mut size) = (0, 1);
        let mut buf = vec![0; 150_001];
        loop {
            match from.read(&mut buf[..size]).unwrap() {
                0 => break,
                n => {
                    assert!(buf[..n].iter().enumerate().all(|(i, &b)| b == byte(seed, at + i)));
                    at += n;
                }
            }
            size = (size * 5 + 3) % 150_000 + 1;
        }
        assert_eq!(at, BYTES);
    }
    let (a, b) = connected(env);
    let (a2, b2) = (a.try_clone().unwrap(), b.try_clone().unwrap());
    let all = [
        env.spawn(move || write_all(a, 1)),
        env.spawn(move || read_all(a2, 2)),
        env.spawn(move || write_all(b, 2)),
        env.spawn(move || read_all(b2, 1)),
    ];
    for one in all {
        one();
    }
}

/// As many descriptors as the machine lets us have, up to what the test wants.
fn raise_descriptor_limit(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is live in both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        if limit.rlim_cur < wanted {
            limit.rlim_cur = wanted.min(limit.rlim_max);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
        }
    }
    limit.rlim_cur
}

pub fn a_thousand_connections(env: Env) {
    // Two descriptors each, and room for the other tests of this process.
    let count = (raise_descriptor_limit(4096).saturating_sub(1000) / 2).min(1000) as usize;
    let (listener, addr): (TcpListener, SocketAddr) = listen();
    let server = env.spawn(move || {
        let served: Vec<_> = listener
            .incoming()
            .take(count)
            .map(|stream| {
                let mut stream = stream.unwrap();
                env.spawn(move || {
                    let mut buf = [0; 64];
                    while let Ok(n @ 1..) = stream.read(&mut buf) {
                        stream.write_all(&buf[..n]).unwrap();
                    }
                })
            })
            .collect();
        for one in served {
            one();
        }
    });
    let mut streams: Vec<_> = (0..count).map(|_| TcpStream::connect(addr).unwrap()).collect();
    for round in 0..3u8 {
        for (i, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&[i as u8, (i >> 8) as u8, round]).unwrap();
        }
        for (i, stream) in streams.iter_mut().enumerate() {
            let mut buf = [0; 3];
            stream.read_exact(&mut buf).unwrap();
            assert_eq!(buf, [i as u8, (i >> 8) as u8, round]);
        }
    }
    drop(streams);
    server();
}
