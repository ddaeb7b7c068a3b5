//! Peers that pass descriptors over control sockets, which never ask for one. Closing such a
//! descriptor may block for minutes; here it is a TCP connection that lingers.

mod harness;

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use harness::{Double, Raw, Room, Served, locked};
use kumihimo_machine::Error;
use kumihimo_machine::socket::peer_socket::set_pass_rights;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, socket_acceptconn, socket_domain};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const SPACE: &str = "{\"protocol\":1,\"ask\":\"space\"}\n";

/// A connection whose last close(2) blocks until the listener, which accepts and reads nothing, is
/// closed: two minutes otherwise.
struct Lingering {
    stream: TcpStream,
    _listener: TcpListener,
}

impl Lingering {
    fn new() -> Lingering {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut stream =
            TcpStream::connect(listener.local_addr().expect("a port")).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        while stream.write(&[0; 1 << 16]).is_ok() {}
        set_socket_linger(&stream, Some(Duration::from_secs(120))).expect("a socket");
        Lingering { stream, _listener: listener }
    }

    /// Passes the only reference to the connection with `bytes`. What the kernel refuses stays
    /// here until the listener is closed.
    fn pass(self, to: &UnixStream, bytes: &[u8]) -> (Result<usize, Errno>, impl Sized + use<>) {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        let fds = [self.stream.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        let kept = sent.is_err().then_some(self.stream);
        (sent, (self._listener, kept))
    }
}

/// A client with a long answer of which it reads only the beginning. Until it reads the rest, the
/// server reads no further request from it, so that a descriptor that is passed meanwhile has lost
/// its sender's reference when the server receives it.
struct Reading(Raw);

impl Reading {
    fn begin(served: &Served) -> Reading {
        let mut raw = served.raw();
        raw.say("{\"protocol\":1,\"ask\":\"microprocesses\"}\n");
        let first = raw.line();
        assert!(first.contains("microprocess"), "{first}");
        Reading(raw)
    }

    fn socket(&self) -> &UnixStream {
        self.0.0.get_ref()
    }

    /// Reads the rest. The next line is the answer to the next request.
    fn finish(mut self) -> Raw {
        while !self.0.line().contains("\"end\"") {}
        self.0
    }
}

/// Number of microprocesses whose list does not fit into the buffers of a socket.
const MANY: u32 = 20_000;

/// Has the listening sockets of this process admit descriptors, as all do before Linux 6.16.
fn admit_descriptors() {
    for entry in std::fs::read_dir("/proc/self/fd").expect("/proc").flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|number| *number > 2) else { continue };
        // SAFETY: only looked at, and a number that is free by now is an error of each call.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if socket_domain(fd) == Ok(AddressFamily::UNIX) && socket_acceptconn(fd) == Ok(true) {
            set_pass_rights(&fd, true);
        }
    }
}

#[test]
fn descriptor_whose_close_blocks_delays_no_other_client() {
    for admits in [false, true] {
        let room = Room::new();
        let served = room.serve(Double::with(MANY));
        if admits {
            admit_descriptors();
        }
        let mut neighbour = served.neighbour();
        let raw = Reading::begin(&served);
        let (sent, kept) = Lingering::new().pass(raw.socket(), SPACE.as_bytes());
        if !admits && sent == Err(Errno::PERM) {
            // Linux 6.16: the server's kernel thread does not see it at all.
            assert_eq!(neighbour.space().expect("an answer").living, u64::from(MANY));
            continue;
        }
        let mut raw = raw.finish();
        let answer = raw.line();
        assert!(answer.contains("passes a descriptor"), "{answer}");
        assert_eq!(raw.line(), "", "its connection is closed");
        assert_eq!(neighbour.space().expect("an answer").living, u64::from(MANY));
        assert_eq!(served.neighbour().space().expect("an answer").living, u64::from(MANY));
        drop(kept);
    }
}

/// The descriptor is behind a request, and the connection ends before it is received.
#[test]
fn descriptor_left_in_the_queue_delays_no_other_client() {
    let room = Room::new();
    let served = room.serve(Double::with(MANY));
    admit_descriptors();
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut raw = Reading::begin(&served);
        // The connection is closed after the answer to this line.
        raw.0.say("x".repeat(70_000) + "\n");
        kept.push(Lingering::new().pass(raw.socket(), SPACE.as_bytes()).1);
        let mut raw = raw.finish();
        let answer = raw.line();
        assert!(answer.contains("\"error\""), "{answer}");
        // Shorter than the descriptor lingers.
        let machine = room.machine().time_limit(Duration::from_secs(30));
        let mut neighbour = machine.neighbour(served.space).expect("it lives");
        assert_eq!(neighbour.space().expect("an answer").living, u64::from(MANY));
    }
}

/// A server whose answer passes a descriptor. The request is made by another thread, since a client
/// that closes the descriptor itself hangs.
#[test]
fn server_that_passes_a_descriptor_does_not_block_its_client() {
    let room = Room::new();
    room.directory();
    let _lock = locked(&room.path().join("1"));
    let listener = UnixListener::bind(room.path().join("1.socket")).expect("a socket");
    let (tells, told) = std::sync::mpsc::channel();
    let machine = room.machine();
    std::thread::spawn(move || {
        let _ = tells.send(machine.neighbour(1).and_then(|mut one| one.space()));
    });
    // A client connects again where a connection ends without an answer.
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.expect("a client");
            kept.push(Lingering::new().pass(&stream, b"{\"protocol\":1,").1);
        }
    });
    let answer = told.recv_timeout(Duration::from_secs(60)).expect("the client does not hang");
    let error = answer.expect_err("it is no answer");
    assert!(matches!(error, Error::Protocol(_) | Error::Gone(_) | Error::Refused(_)), "{error}");
}
