//! UNIX sockets.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kumihimo_io::net::unix::SocketAddr;
use kumihimo_io::net::{UnixListener, UnixStream};

use super::Env;
use super::tcp::SHORT;

/// A path of our own, removed at the end.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Place(std::env::temp_dir().join(format!("kumi-io-{}-{n}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn converse(mut a: UnixStream, mut b: UnixStream, env: Env) {
    let echo = env.spawn(move || {
        let mut buf = [0; 100];
        while let n @ 1.. = b.read(&mut buf).unwrap() {
            b.write_all(&buf[..n]).unwrap();
        }
    });
    let mut buf = [0; 64];
    for i in 0..100u8 {
        a.write_all(&[i; 64]).unwrap();
        a.read_exact(&mut buf).unwrap();
        assert_eq!(buf, [i; 64]);
    }
    drop(a);
    echo();
}

pub fn pair(env: Env) {
    let (a, b) = UnixStream::pair().unwrap();
    assert!(a.local_addr().unwrap().is_unnamed());
    assert!(format!("{a:?}").starts_with("UnixStream"));
    converse(a, b, env);
}

pub fn by_path(env: Env) {
    let place = Place::new();
    let listener = UnixListener::bind(&place.0).unwrap();
    assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*place.0));
    let a = UnixStream::connect(&place.0).unwrap();
    assert_eq!(a.peer_addr().unwrap().as_pathname(), Some(&*place.0));
    let (b, from) = listener.accept().unwrap();
    assert!(from.is_unnamed());
    converse(a, b, env);
}

pub fn by_abstract_name(env: Env) {
    let place = Place::new();
    let addr = SocketAddr::from_abstract_name(place.0.as_os_str().as_encoded_bytes()).unwrap();
    let listener = UnixListener::bind_addr(&addr).unwrap();
    let a = UnixStream::connect_addr(&addr).unwrap();
    assert_eq!(a.peer_addr().unwrap().as_abstract_name(), addr.as_abstract_name());
    converse(a, listener.accept().unwrap().0, env);
}

pub fn bad_paths(_: Env) {
    let place = Place::new();
    assert_eq!(UnixStream::connect(&place.0).unwrap_err().kind(), ErrorKind::NotFound);
    let listener = UnixListener::bind(&place.0).unwrap();
    assert_eq!(UnixListener::bind(&place.0).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(listener);
    // The path outlives the listener; nobody is behind it.
    assert_eq!(UnixStream::connect(&place.0).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let long = "x".repeat(108);
    assert_eq!(UnixStream::connect(&long).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(UnixListener::bind(&long).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(UnixStream::connect(Path::new("a\0b")).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// connect(2) says EAGAIN to a non-blocking caller, and there is nothing to wait on: the call
/// itself must wait.
pub fn full_backlog(env: Env) {
    let place = Place::new();
    let listener = UnixListener::bind(&place.0).unwrap();
    // SAFETY: no pointer.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    const CLIENTS: usize = 5;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let path = place.0.clone();
            env.spawn(move || {
                let mut stream = UnixStream::connect(path).unwrap();
                assert_eq!(stream.write_timeout().unwrap(), None);
                stream.write_all(b"x").unwrap();
            })
        })
        .collect();
    for _ in 0..CLIENTS {
        listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
    }
    for client in clients {
        client();
    }
}

/// A read ends at a message that carries descriptors, although more lies behind it.
pub fn descriptors_in_the_stream(env: Env) {
    let (mut stream, mut other) = UnixStream::pair().unwrap();
    let writer = env.spawn(move || {
        for _ in 0..100 {
            other.read_exact(&mut [0]).unwrap();
            other.write_all(b"ab").unwrap();
            send_with_descriptor(&other, b"cd");
            other.write_all(b"ef").unwrap();
        }
    });
    for _ in 0..100 {
        stream.write_all(b"?").unwrap();
        let mut all = Vec::new();
        while all.len() < 6 {
            let mut buf = [0; 100];
            let n = stream.read(&mut buf).unwrap();
            assert_ne!(n, 0);
            all.extend_from_slice(&buf[..n]);
        }
        assert_eq!(all, b"abcdef");
    }
    writer();
}

fn send_with_descriptor(stream: &UnixStream, data: &[u8]) {
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let iov = IoSlice::new(data);
    // SAFETY: all-zero is a valid msghdr; CMSG_FIRSTHDR points into `control`, which has room for
    // one header and one descriptor; everything that the message points to lives until sendmsg has
    // returned.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = (&raw const iov).cast_mut().cast();
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(stream.as_raw_fd());
        assert_eq!(libc::sendmsg(stream.as_raw_fd(), &message, 0), data.len() as isize);
    }
}

pub fn timeouts(_: Env) {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    a.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(a.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    b.set_write_timeout(Some(SHORT)).unwrap();
    let e = loop {
        if let Err(e) = b.write_all(&[0; 4096]) {
            break e;
        }
    };
    assert_eq!(e.kind(), ErrorKind::WouldBlock);
    assert_eq!(
        a.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let std = std::os::unix::net::UnixStream::from(b);
    assert!(std.write_timeout().unwrap().is_some());
}

pub fn shutdown_and_peek(env: Env) {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let writer = env.spawn(move || {
        b.write_all(b"abc").unwrap();
        b.shutdown(Shutdown::Write).unwrap();
        assert_eq!(b.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
    });
    let mut buf = [0; 10];
    let n = a.peek(&mut buf).unwrap();
    assert_eq!(&buf[..n], b"abc");
    assert_eq!(a.read(&mut buf).unwrap(), 3);
    assert_eq!(a.read(&mut buf).unwrap(), 0);
    drop(a);
    writer();
}

pub fn unix_incoming(env: Env) {
    let place = Place::new();
    let listener = UnixListener::bind(&place.0).unwrap();
    let path = place.0.clone();
    let clients = env.spawn(move || {
        for i in 0..5 {
            UnixStream::connect(&path).unwrap().write_all(&[i]).unwrap();
        }
    });
    for (i, stream) in (0..5).zip(&listener) {
        let mut all = Vec::new();
        stream.unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all, [i]);
    }
    clients();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
