//! Peers that do not follow the protocol.

use super::*;

/// A server of the test's, and one of another make.
struct TestServer {
    room: TestDirectory,
    poller: Arc<LinkPoller>,
    number: Arc<Number>,
    told: Receiver<Notification>,
    _serving: Published,
}

fn served() -> TestServer {
    let (room, poller, (test_gate, told)) = (TestDirectory::new(), LinkPoller::new(), test_gate());
    let number = room.number();
    let serving = poller.publish(&number, "clock", &[], test_gate).unwrap();
    TestServer { room, poller, number, told, _serving: serving }
}

impl TestServer {
    /// Connected; nothing is said yet.
    fn raw(&self) -> OwnedFd {
        let number = self.number.location().space();
        self.room.machine().connect(number, Instant::now() + LONG).unwrap().socket
    }

    /// In, and what the server's side is told about.
    fn raw_link(&self) -> (OwnedFd, Link) {
        let raw = self.raw();
        send(&raw, &hello("clock").encode(), None, true).unwrap();
        let Packet::Record(record) = receive(&raw, true).unwrap() else { panic!("it is let in") };
        Welcome::decode(record.bytes()).unwrap();
        (raw, opened(&self.told))
    }
}

/// Why it was not let in; the connection is closed then.
fn refused(raw: &OwnedFd) -> Error {
    let Packet::Record(record) = receive(raw, true).unwrap() else { panic!("it is told why") };
    assert!(matches!(receive(raw, true), Ok(Packet::End)));
    Welcome::decode(record.bytes()).unwrap_err()
}

/// With several descriptors. False: the kernel refuses them, from Linux 6.16 on until the client
/// is let in.
fn send_with(raw: &OwnedFd, record: &[u8], descriptors: usize) -> bool {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let fd = memory(b"x");
    let all = vec![fd.as_fd(); descriptors];
    let mut room = vec![std::mem::MaybeUninit::uninit(); 4096];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&all)));
    let record = [std::io::IoSlice::new(record)];
    match sendmsg(raw, &record, &mut ancillary, SendFlags::NOSIGNAL) {
        Ok(_) => true,
        Err(Errno::PERM) => false,
        Err(e) => panic!("{e}"),
    }
}

/// How many descriptors of this process are memory of this test program's name.
fn memories() -> usize {
    let links = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    links.filter(|path| path.to_string_lossy().contains("memfd:leak")).count()
}

#[test]
fn version_mismatch_is_reported_on_both_sides() {
    let served = served();
    let raw = served.raw();
    let mut record = hello("clock").encode();
    record[4..6].copy_from_slice(&7_u16.to_le_bytes());
    send(&raw, &record, None, true).unwrap();
    let here = refused(&raw);
    let (count, there) = served.poller.refused();
    assert_eq!((count, &there.unwrap().1), (1, &here));
    assert_eq!(here.kind(), ErrorKind::Version);
    assert!(
        here.to_string().contains("version 7") && here.to_string().contains("version 1"),
        "{here}"
    );
    // What the gate says is told as it is; a panic of its is an error.
    for (types, kind) in [(0, ErrorKind::Version), (1, ErrorKind::Panicked)] {
        let wanted = Hello { types: Some(types), ..hello("clock") };
        assert_eq!(
            served.poller.connect(&served.room.machine(), &wanted, LONG).unwrap_err().kind(),
            kind
        );
    }
    let other = Hello { types: Some(2), ..hello("clock") };
    served.poller.connect(&served.room.machine(), &other, LONG).unwrap();
}

#[test]
fn malformed_hello_is_refused() {
    let served = served();
    let good = hello("clock").encode();
    let garbage: [&[u8]; 5] =
        [b"x", b"GET / HTTP/1.1\r\n\r\n", &[0; LONGEST], &[b'K'; 4096], &good[..good.len() - 1]];
    for bytes in garbage {
        let raw = served.raw();
        send(&raw, bytes, None, true).unwrap();
        assert_eq!(refused(&raw).kind(), ErrorKind::Malformed);
    }
    let mut count = 6;
    for descriptors in [1, 2, 4, 5, 250] {
        let raw = served.raw();
        if send_with(&raw, &good, descriptors) {
            assert_eq!(refused(&raw).kind(), ErrorKind::Malformed, "{descriptors}");
            count += 1;
        }
    }
    // An empty record is what the end looks like.
    let raw = served.raw();
    send(&raw, b"", None, true).unwrap();
    assert!(matches!(receive(&raw, true), Ok(Packet::End)));
    let raw = served.raw();
    send(&raw, &Hello { name: "other".into(), ..hello("") }.encode(), None, true).unwrap();
    assert_eq!(refused(&raw).kind(), ErrorKind::NotFound);
    assert_eq!(served.poller.refused().0, count);
    let (raw, _link) = served.raw_link();
    drop(raw);
    assert_eq!(gone(&served.told).kind(), ErrorKind::Gone);
}

#[test]
fn malformed_record_closes_the_link() {
    let served = served();
    let region = [&[0x11][..], &[0; 16]].concat();
    let records: [(&[u8], usize); 11] = [
        (b"\xff", 0),
        (&[0; 2000], 0),
        (&region, 0),
        (&region, 2),
        (&region, 200),
        (&region[..16], 1),
        (&[0x10], 1),
        (&[0x10, 0], 0),
        (&[0x12, 1], 0),
        (&[0x13], 0),
        (&[0x13, 5, 200, 0, b'x'], 0),
    ];
    for (record, descriptors) in records {
        let (raw, link) = served.raw_link();
        match descriptors {
            0 => send(&raw, record, None, true).unwrap(),
            n => assert!(send_with(&raw, record, n)),
        }
        assert_eq!(gone(&served.told).kind(), ErrorKind::Malformed, "{record:?}, {descriptors}");
        let Packet::Record(bye) = receive(&raw, true).unwrap() else { panic!("it is told why") };
        assert_eq!((bye.bytes()[0], bye.bytes()[1]), (0x13, ErrorKind::Malformed.number()));
        assert!(matches!(receive(&raw, true), Ok(Packet::End)));
        drop(link);
    }
}

#[test]
fn unexpected_descriptors_are_closed() {
    let served = served();
    let leak = || memfd_create("leak", MemfdFlags::CLOEXEC).unwrap();
    let raws: Vec<_> = (0..20)
        .map(|_| {
            let (raw, link) = served.raw_link();
            send(&raw, &[0x10], Some(leak().as_fd()), true).unwrap();
            assert_eq!(gone(&served.told).kind(), ErrorKind::Malformed);
            (raw, link)
        })
        .collect();
    assert_eq!(memories(), 0);
    drop(raws);
}

#[test]
fn silent_client_expires_and_blocks_no_other() {
    let served = served();
    let silent: Vec<_> = (0..300).map(|_| served.raw()).collect();
    let (_link, _told) = linked(&served.poller, &served.room, "clock");
    opened(&served.told);
    // The first made room for others, the last had its time.
    assert_eq!(refused(&silent[0]).kind(), ErrorKind::Exhausted);
    assert_eq!(refused(&silent[299]).kind(), ErrorKind::TimedOut);
}

/// A server that answers with these bytes and so many descriptors.
fn answered(bytes: &[u8], descriptors: usize) -> Error {
    let room = TestDirectory::new();
    let gates = Gates::open(room.number()).unwrap();
    gates.bind("clock").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut fds = [rustix::event::PollFd::new(&gates, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap();
            let raw = accept_with(&gates, SocketFlags::CLOEXEC).unwrap();
            let Packet::Record(_) = receive(&raw, true).unwrap() else {
                panic!("it says what it wants")
            };
            match descriptors {
                0 => send(&raw, bytes, None, true).unwrap(),
                n => assert!(send_with(&raw, bytes, n)),
            }
        });
        LinkPoller::new().connect(&room.machine(), &hello("clock"), LONG).unwrap_err()
    })
}

#[test]
fn malformed_welcome_is_an_error() {
    let welcome =
        Welcome { link: 1, size: LaneSize { cells: 8, inline: 64 }, wake_address: None }.encode();
    let mut other = welcome.clone();
    other[4..6].copy_from_slice(&7_u16.to_le_bytes());
    let version = answered(&other, 1);
    assert_eq!(version.kind(), ErrorKind::Version);
    assert!(
        version.to_string().contains("version 7") && version.to_string().contains("version 1"),
        "{version}"
    );
    for (bytes, descriptors) in [
        (&welcome[..], 0),
        (&welcome, 2),
        (&welcome, 200),
        (&welcome[..welcome.len() - 1], 1),
        (b"x", 0),
        (b"KUMI\x01\0\x03\x01", 0),
    ] {
        assert_eq!(
            answered(bytes, descriptors).kind(),
            ErrorKind::Malformed,
            "{bytes:?}, {descriptors}"
        );
    }
    assert_eq!(answered(b"", 0).kind(), ErrorKind::Gone);
    // Nothing of what it says reaches a terminal as more than text.
    let said = answered(&refusal(&Error::new(ErrorKind::Io, "\x1b[2Jno\n")), 0);
    assert_eq!((said.kind(), said.to_string().as_str()), (ErrorKind::Io, "[2Jno"));
}

#[test]
fn silent_server_times_out() {
    let room = TestDirectory::new();
    let gates = Gates::open(room.number()).unwrap();
    gates.bind("clock").unwrap();
    let connect = || {
        LinkPoller::new()
            .connect(&room.machine(), &hello("clock"), Duration::from_millis(50))
            .unwrap_err()
    };
    let late = connect();
    assert!(late.kind() == ErrorKind::TimedOut && late.to_string().contains("clock"), "{late}");
}

/// Its notification panics.
struct Panics;

impl LinkHandler for Panics {
    fn rung(&self) {
        panic!("as it was told");
    }

    fn region_passed(&self, _: u64, _: OwnedFd, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn region_forgotten(&self, _: u64) {}

    fn closed(&self, _: Error) {
        panic!("as it was told");
    }
}

#[test]
fn panic_of_a_receiver_ends_only_its_link() {
    let served = served();
    let (other, others) = linked(&served.poller, &served.room, "clock");
    let its = opened(&served.told);
    let established = served.poller.connect(&served.room.machine(), &hello("clock"), LONG).unwrap();
    let mut link = None;
    let opens = |its| {
        link = Some(its);
        Arc::new(Panics) as Arc<dyn LinkHandler>
    };
    served.poller.attach(established, opens).unwrap();
    opened(&served.told).ring();
    assert_eq!(
        gone(&served.told).kind(),
        ErrorKind::Gone,
        "this side's own hold was dropped at once"
    );
    its.ring();
    assert!(matches!(next(&others), Notification::Rang));
    drop((other, link));
}

/// A connection whose last close(2) blocks for two minutes: it lingers with unsent data, and the
/// listener, which is returned, reads nothing.
fn lingering() -> (std::net::TcpListener, std::net::TcpStream) {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(120))).unwrap();
    (listener, stream)
}

/// The first is received, and the others are in the queue of the link when it is closed.
#[test]
fn descriptors_whose_close_blocks_delay_no_other_link() {
    let served = served();
    let (other, others) = linked(&served.poller, &served.room, "clock");
    let its = opened(&served.told);
    let mut listeners = Vec::new();
    let region = [&[0x11][..], &[0; 16]].concat();
    for (records, pending) in [(1, 1), (5, 2)] {
        let (raw, link) = served.raw_link();
        for record in 0..records {
            let (listener, stream) = lingering();
            let sent = send(&raw, &region, Some(stream.as_fd()), true);
            listeners.push(listener);
            if sent.is_err() {
                // The link was cut for the first record already.
                assert_ne!(record, 0);
                rustix::net::sockopt::set_socket_linger(&stream, None).unwrap();
                break;
            }
        }
        assert_eq!(gone(&served.told).kind(), ErrorKind::Malformed);
        drop((raw, link));
        its.ring();
        assert!(matches!(next(&others), Notification::Rang));
        other.ring();
        assert!(matches!(next(&served.told), Notification::Rang));
        until(
            || {
                kumihimo_machine::socket::disposal::pending(rustix::process::geteuid().as_raw())
                    >= pending
            },
            || "nothing is closed elsewhere".into(),
        );
    }
    // A further client is admitted.
    let _third = served.raw_link();
}
