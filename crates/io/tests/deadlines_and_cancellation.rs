//! What scopes hand down, and what ends a waiting call from outside.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kumihimo_io::net::unix::SocketAddr;
use kumihimo_io::net::{
    SocketBuilder, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream,
};
use kumihimo_runtime::cancel::Cancelled;
use kumihimo_runtime::thread;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3600);

fn inside<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(f).join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (stream, listener.accept().unwrap().0)
}

/// A call that waits in a scope whose deadline comes first says TimedOut, also to children; a
/// socket's own timeout says WouldBlock.
#[test]
fn inherited_deadline_ends_every_wait() {
    inside(|| {
        let (mut stream, _other) = pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut a, _b) = UnixStream::pair().unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (datagram, _c) = UnixDatagram::pair().unwrap();
        let buf = &mut [0; 10];
        for timeout in [None, Some(LONG)] {
            stream.set_read_timeout(timeout).unwrap();
            thread::scope_until(Instant::now() + SHORT, |_| {
                assert_eq!(stream.read(buf).unwrap_err().kind(), ErrorKind::TimedOut);
                assert_eq!(stream.peek(buf).unwrap_err().kind(), ErrorKind::TimedOut);
                assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
                assert_eq!(a.read(buf).unwrap_err().kind(), ErrorKind::TimedOut);
                assert_eq!(udp.recv(buf).unwrap_err().kind(), ErrorKind::TimedOut);
                assert_eq!(udp.recv_from(buf).unwrap_err().kind(), ErrorKind::TimedOut);
                assert_eq!(datagram.recv(buf).unwrap_err().kind(), ErrorKind::TimedOut);
            });
        }
        stream.set_read_timeout(Some(SHORT)).unwrap();
        thread::scope_until(Instant::now() + LONG, |_| {
            assert_eq!(stream.read(buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
    });
}

#[test]
fn writes_and_connects_end_at_the_deadline_too() {
    inside(|| {
        let (mut stream, _other) = pair();
        thread::scope_until(Instant::now() + SHORT, |_| {
            let e = loop {
                if let Err(e) = stream.write_all(&[0; 1 << 16]) {
                    break e;
                }
            };
            assert_eq!(e.kind(), ErrorKind::TimedOut);
        });
        // A backlog that is full: the kernel asks again after a second at the earliest.
        let listener = SocketBuilder::new().backlog(0).listen("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        let e = thread::scope_until(Instant::now() + SHORT, |_| {
            loop {
                match TcpStream::connect(at) {
                    Ok(stream) => waiting.push(stream),
                    Err(e) => break e,
                }
            }
        });
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        assert!(e.to_string().contains("deadline of an enclosing scope"), "{e}");
    });
}

/// The deadline bounds waiting: what is there already is read.
#[test]
fn a_call_that_need_not_wait_succeeds_after_the_deadline() {
    inside(|| {
        let (mut stream, mut other) = pair();
        other.write_all(b"here").unwrap();
        // Has arrived before the scope begins.
        stream.peek(&mut [0]).unwrap();
        thread::scope_until(Instant::now(), |_| {
            assert_eq!(stream.read(&mut [0]).unwrap(), 1);
        });
    });
}

#[test]
fn cancelling_ends_calls_that_wait() {
    let calls: [fn(); 8] = [
        || {
            let (mut stream, _other) = pair();
            drop(stream.read(&mut [0]));
        },
        || drop(TcpListener::bind("127.0.0.1:0").unwrap().accept()),
        || {
            let (mut stream, _other) = pair();
            while stream.write(&[0; 1 << 16]).is_ok() {}
        },
        || {
            let (mut a, _b) = UnixStream::pair().unwrap();
            drop(a.read(&mut [0]));
        },
        || drop(UdpSocket::bind("127.0.0.1:0").unwrap().recv_from(&mut [0])),
        || {
            let (a, _b) = UnixDatagram::pair().unwrap();
            drop(a.recv(&mut [0]));
        },
        || {
            let (a, _b) = UnixDatagram::pair().unwrap();
            while a.send(&[0; 1000]).is_ok() {}
        },
        || {
            // Without a connection.
            let name =
                format!("kumi-io-{}-{:x}", std::process::id(), thread::current().id().as_u64());
            let at = SocketAddr::from_abstract_name(name).unwrap();
            let _receiver = UnixDatagram::bind_addr(&at).unwrap();
            let sender = UnixDatagram::unbound().unwrap();
            while sender.send_to_addr(&[0; 1000], &at).is_ok() {}
        },
    ];
    for call in calls {
        // Whether the cancellation comes before the call waits or while it does.
        for settle in [false, true] {
            let (began, waits) = mpsc::channel();
            let one = thread::spawn(move || {
                began.send(()).unwrap();
                call();
            });
            waits.recv().unwrap();
            if settle {
                thread::sleep(Duration::from_millis(5));
            }
            one.cancel();
            assert!(one.join().unwrap_err().is::<Cancelled>());
        }
    }
}

/// A loop whose calls never wait can be cancelled as well.
#[test]
fn a_call_that_need_not_wait_is_a_cancellation_point() {
    let busy = thread::spawn(|| {
        let (mut stream, mut other) = pair();
        loop {
            stream.write_all(b"x").unwrap();
            other.read_exact(&mut [0]).unwrap();
        }
    });
    busy.cancel();
    assert!(busy.join().unwrap_err().is::<Cancelled>());
}
