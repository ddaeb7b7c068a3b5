//! `net::Server`: what it serves, sheds, and how it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kumihimo_io::net::{Cause, Server, TcpListener, TcpStream, UnixListener, UnixStream};
use kumihimo_runtime::cancel::Cancelled;
use kumihimo_runtime::thread;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3600);

fn inside<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(f).join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// On a plain std thread, and in a microprocess.
fn everywhere(f: fn()) {
    f();
    inside(f);
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// Says hello, so that a reader knows that it is served; then echoes.
fn echo(mut stream: impl Read + Write) {
    stream.write_all(b"hello").unwrap();
    let mut buf = [0; 100];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        stream.write_all(&buf[..n]).unwrap();
    }
}

fn connect(at: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    let mut buf = [0; 5];
    stream.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"hello");
    stream
}

fn rest(mut stream: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn draining_lets_active_connections_finish() {
    everywhere(|| {
        let server = Server::new();
        let (listener, at) = listen();
        let tally = thread::scope(|s| {
            let serving = s.spawn(|| server.serve(&listener, |stream, _| echo(stream)));
            let mut streams: Vec<_> = (0..10).map(|_| connect(at)).collect();
            assert_eq!(server.open(), 10);
            server.drain(LONG);
            assert!(server.is_draining());
            for stream in &mut streams {
                stream.write_all(b"still").unwrap();
                let mut buf = [0; 5];
                stream.read_exact(&mut buf).unwrap();
                assert_eq!(&buf, b"still");
            }
            drop(streams);
            serving.join().unwrap().unwrap()
        });
        assert_eq!((tally.served, tally.cancelled, tally.refused, tally.panicked), (10, 0, 0, 0));
        assert_eq!(server.open(), 0);
        // It serves no more; what waits in the backlog is left to others.
        let waiting = TcpStream::connect(at).unwrap();
        assert_eq!(server.serve(&listener, |stream, _| echo(stream)).unwrap().served, 0);
        listener.accept().unwrap();
        drop(waiting);
    });
}

#[test]
fn draining_cancels_connections_after_the_time() {
    everywhere(|| {
        let server = Server::new();
        let (listener, at) = listen();
        thread::scope(|s| {
            let serving = s.spawn(|| server.serve(&listener, |stream, _| echo(stream)));
            let ends = connect(at);
            let stays = connect(at);
            server.drain(LONG);
            drop(ends);
            // The earlier end counts.
            server.drain(SHORT);
            server.drain(LONG);
            let tally = serving.join().unwrap().unwrap();
            assert_eq!((tally.served, tally.cancelled), (1, 1));
            assert_eq!(rest(stays), b"", "closed");
        });
    });
}

/// A connection that waits for a request has nothing to lose; one with a request under way answers
/// it.
#[test]
fn draining_cancels_idle_connections_at_once() {
    everywhere(|| {
        let server = Server::new();
        let (listener, at) = listen();
        let tally = thread::scope(|s| {
            let serving = s.spawn(|| {
                server.serve(&listener, |mut stream: TcpStream, _| {
                    stream.write_all(b"hello").unwrap();
                    let mut buf = [0; 5];
                    while let Ok(1..) = server.idle(|| stream.peek(&mut buf)) {
                        stream.read_exact(&mut buf).unwrap();
                        stream.write_all(&buf).unwrap();
                    }
                })
            });
            let mut idle: Vec<_> = (0..10).map(|_| connect(at)).collect();
            let mut busy = connect(at);
            let mut buf = [0; 5];
            for stream in idle.iter_mut().chain([&mut busy]) {
                stream.write_all(b"first").unwrap();
                stream.read_exact(&mut buf).unwrap();
            }
            let are_idle = |n: usize| format!("{server:?}").contains(&format!("idle: {n},"));
            while !are_idle(11) {
                thread::yield_now();
            }
            busy.write_all(b"h").unwrap();
            while !are_idle(10) {
                thread::yield_now();
            }
            server.drain(LONG);
            for stream in idle {
                assert_eq!(rest(stream), b"");
            }
            busy.write_all(b"alf!").unwrap();
            busy.read_exact(&mut buf).unwrap();
            assert_eq!(&buf, b"half!");
            assert_eq!(rest(busy), b"");
            serving.join().unwrap().unwrap()
        });
        assert_eq!((tally.served, tally.cancelled), (11, 0));
    });
}

#[test]
fn too_many_connections_are_refused() {
    everywhere(|| {
        let told = Arc::new(AtomicU64::new(0));
        let count = told.clone();
        let server = Server::new().connections(2).refusal("full\n").on_trouble(move |trouble| {
            assert_eq!(trouble.cause, Cause::Connections);
            assert!(trouble.to_string().contains("2 are open"), "{trouble}");
            assert!(trouble.to_string().contains(&trouble.listener), "{trouble}");
            count.fetch_add(trouble.count, Ordering::Relaxed);
        });
        let ((tcp, at), path) =
            (listen(), std::env::temp_dir().join(format!("kumi-io-server-{}", std::process::id())));
        let _ = std::fs::remove_file(&path);
        let unix = UnixListener::bind(&path).unwrap();
        thread::scope(|s| {
            // The limit is that of both listeners together.
            let serving = s.spawn(|| server.serve(&tcp, |stream, _| echo(stream)));
            let also = s.spawn(|| server.serve(&unix, |stream, _| echo(stream)));
            let first = connect(at);
            let mut second = UnixStream::connect(&path).unwrap();
            second.read_exact(&mut [0; 5]).unwrap();
            for _ in 0..5 {
                let mut late = TcpStream::connect(at).unwrap();
                // A client that speaks first reads the answer all the same.
                let _ = late.write_all(b"request");
                assert_eq!(rest(late), b"full\n");
            }
            assert_eq!(rest(UnixStream::connect(&path).unwrap()), b"full\n");
            drop(first);
            // One place is free as soon as the server has seen the end.
            while server.open() > 1 {
                thread::yield_now();
            }
            drop(connect(at));
            drop(second);
            server.drain(LONG);
            let (tcp, unix) = (serving.join().unwrap().unwrap(), also.join().unwrap().unwrap());
            assert_eq!((tcp.served, tcp.refused), (2, 5));
            assert_eq!((unix.served, unix.refused), (1, 1));
        });
        std::fs::remove_file(&path).unwrap();
        // At once for the first, then at most once a second.
        assert!((1..=6).contains(&told.load(Ordering::Relaxed)));
    });
}

#[test]
fn too_much_memory_in_use_refuses_connections() {
    everywhere(|| {
        let (tell, told) = mpsc::channel();
        let server = Server::new()
            .memory(1 << 20)
            .refusal("no room")
            .on_trouble(move |t| tell.send(t.cause).unwrap());
        let (listener, at) = listen();
        thread::scope(|s| {
            let serving = s.spawn(|| server.serve(&listener, |stream, _| echo(stream)));
            assert_eq!(rest(TcpStream::connect(at).unwrap()), b"no room");
            server.drain(LONG);
            assert_eq!(serving.join().unwrap().unwrap().refused, 1);
        });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Cause::Memory]);
        // With room enough nobody is refused.
        let server = Server::new().memory(1 << 46);
        thread::scope(|s| {
            let serving = s.spawn(|| server.serve(&listener, |stream, _| echo(stream)));
            drop(connect(at));
            server.drain(LONG);
            assert_eq!(serving.join().unwrap().unwrap().served, 1);
        });
    });
}

#[test]
fn panicking_connection_leaves_others_running() {
    everywhere(|| {
        let server = Server::new();
        let (listener, at) = listen();
        thread::scope(|s| {
            let serving = s.spawn(|| {
                server.serve(&listener, |mut stream: TcpStream, _| {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    assert_ne!(byte, *b"!", "a request that it cannot bear");
                    stream.write_all(b"fine").unwrap();
                })
            });
            let mut bad = TcpStream::connect(at).unwrap();
            bad.write_all(b"!").unwrap();
            assert_eq!(rest(bad), b"");
            let mut good = TcpStream::connect(at).unwrap();
            good.write_all(b"?").unwrap();
            assert_eq!(rest(good), b"fine");
            server.drain(LONG);
            let tally = serving.join().unwrap().unwrap();
            assert_eq!((tally.served, tally.panicked), (1, 1));
        });
    });
}

#[test]
fn scope_deadline_drains_the_server() {
    inside(|| {
        let server = Server::new();
        let (listener, at) = listen();
        let (mut stays, tally) = thread::scope(|s| {
            let client = s.spawn(|| connect(at));
            let tally = thread::scope_until(Instant::now() + 10 * SHORT, |_| {
                server.serve(&listener, |stream, _| {
                    let mut stream = stream;
                    stream.write_all(b"hello").unwrap();
                    // Not by a read's error, but by its microprocess's end.
                    thread::park();
                })
            });
            (client.join().unwrap(), tally.unwrap())
        });
        assert_eq!((tally.served, tally.cancelled), (0, 1));
        assert_eq!(stays.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn cancelled_caller_cancels_its_connections() {
    inside(|| {
        let (listener, at) = listen();
        let serving =
            thread::spawn(move || Server::new().serve(&listener, |stream, _| echo(stream)));
        let stream = connect(at);
        serving.cancel();
        assert!(serving.join().unwrap_err().is::<Cancelled>());
        assert_eq!(rest(stream), b"");
        assert_eq!(TcpStream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

/// Not a listener: an error, when those that are served have ended.
#[test]
fn socket_that_does_not_listen_is_an_error() {
    everywhere(|| {
        let (listener, at) = listen();
        let server = Server::new();
        thread::scope(|s| {
            let serving = s.spawn(|| server.serve(&listener, |stream, _| echo(stream)));
            let mut stream = connect(at);
            socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both).unwrap();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            drop(stream);
            assert_eq!(serving.join().unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
        });
        let (stream, _other) = UnixStream::pair().unwrap();
        let none = UnixListener::from(std::os::fd::OwnedFd::from(stream));
        assert_eq!(
            server.serve(&none, |stream, _| echo(stream)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}
