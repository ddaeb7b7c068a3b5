//! UNIX sockets.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::time::Duration;

use kumihimo::fs;
use kumihimo::net::{Shutdown, UnixDatagram, UnixListener, UnixStream};

use crate::Beside;
use crate::beside::behaviours;
use crate::place::Place;

const SOON: Duration = Duration::from_millis(10);

behaviours!(
    stream_goes_both_ways,
    listener_serves_by_path,
    path_is_bound_once,
    missing_path_is_not_found,
    path_without_a_listener_refuses,
    too_long_path_is_invalid,
    addresses_tell_paths,
    pair_is_unnamed,
    stream_shutdown,
    stream_clones,
    stream_read_times_out,
    stream_write_times_out,
    stream_timeout_of_zero_is_invalid,
    stream_nonblocking_would_block,
    stream_is_vectored,
    unix_incoming_yields_connections,
    datagram_pair,
    datagrams_by_path,
    datagram_to_a_missing_path,
    datagram_read_times_out,
    datagram_clone_receives,
    connected_datagrams,
    datagram_shutdown_ends_a_read,
);

fn stream_goes_both_ways(beside: Beside) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let answers = beside.spawn(move || {
        let mut three = [0; 3];
        there.read_exact(&mut three).unwrap();
        three.reverse();
        there.write_all(&three).unwrap();
    });
    here.write_all(b"abc").unwrap();
    let mut all = Vec::new();
    here.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"cba");
    answers.result();
}

fn listener_serves_by_path(beside: Beside) {
    let place = Place::new();
    let path = place.at("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let asks = beside.spawn(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(b"hello").unwrap();
    });
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    asks.result();
}

fn path_is_bound_once(_: Beside) {
    let place = Place::new();
    let listener = UnixListener::bind(place.at("s")).unwrap();
    let again = || UnixListener::bind(place.at("s")).map(drop).unwrap_err().kind();
    assert_eq!(again(), ErrorKind::AddrInUse);
    drop(listener);
    assert_eq!(again(), ErrorKind::AddrInUse, "the file stays");
    fs::remove_file(place.at("s")).unwrap();
    UnixListener::bind(place.at("s")).unwrap();
}

fn missing_path_is_not_found(_: Beside) {
    let place = Place::new();
    let missing = UnixStream::connect(place.at("none")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

fn path_without_a_listener_refuses(_: Beside) {
    let place = Place::new();
    drop(UnixListener::bind(place.at("s")).unwrap());
    let refused = UnixStream::connect(place.at("s")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

fn too_long_path_is_invalid(_: Beside) {
    let long = "x".repeat(200);
    assert_eq!(UnixListener::bind(&long).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(UnixStream::connect(&long).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(UnixDatagram::bind(&long).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
}

fn addresses_tell_paths(_: Beside) {
    let place = Place::new();
    let listener = UnixListener::bind(place.at("s")).unwrap();
    let client = UnixStream::connect(place.at("s")).unwrap();
    let (server, peer) = listener.accept().unwrap();
    let path = place.at("s");
    assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*path));
    assert_eq!(client.peer_addr().unwrap().as_pathname(), Some(&*path));
    assert!(peer.is_unnamed() && server.peer_addr().unwrap().is_unnamed());
}

fn pair_is_unnamed(_: Beside) {
    let (here, there) = UnixStream::pair().unwrap();
    assert!(here.local_addr().unwrap().is_unnamed() && there.peer_addr().unwrap().is_unnamed());
    assert!(here.take_error().unwrap().is_none());
}

fn stream_shutdown(beside: Beside) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let reads = beside.spawn(move || {
        let mut all = Vec::new();
        there.read_to_end(&mut all).unwrap();
        there.write_all(b"still").unwrap();
        all
    });
    here.write_all(b"last").unwrap();
    here.shutdown(Shutdown::Write).unwrap();
    assert_eq!(here.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(reads.result(), b"last");
    let mut all = String::new();
    here.read_to_string(&mut all).unwrap();
    assert_eq!(all, "still");
}

fn stream_clones(beside: Beside) {
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut clone = here.try_clone().unwrap();
    let writes = beside.spawn(move || clone.write_all(b"a").unwrap());
    writes.result();
    (&here).write_all(b"b").unwrap();
    drop(here);
    let mut all = String::new();
    there.read_to_string(&mut all).unwrap();
    assert_eq!(all, "ab");
}

fn stream_read_times_out(_: Beside) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    here.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(here.read_timeout().unwrap(), Some(SOON));
    assert_eq!(here.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    there.write_all(b"x").unwrap();
    here.set_read_timeout(None).unwrap();
    assert_eq!(here.read(&mut [0; 2]).unwrap(), 1);
}

fn stream_write_times_out(_: Beside) {
    let (mut here, _there) = UnixStream::pair().unwrap();
    here.set_write_timeout(Some(SOON)).unwrap();
    let error = loop {
        if let Err(e) = here.write(&[0; 1 << 16]) {
            break e;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

fn stream_timeout_of_zero_is_invalid(_: Beside) {
    let (here, _there) = UnixStream::pair().unwrap();
    let zero = Some(Duration::ZERO);
    assert_eq!(here.set_read_timeout(zero).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(here.set_write_timeout(zero).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(here.read_timeout().unwrap(), None);
}

fn stream_nonblocking_would_block(_: Beside) {
    let place = Place::new();
    let (mut here, _there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    assert_eq!(here.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let listener = UnixListener::bind(place.at("s")).unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn stream_is_vectored(_: Beside) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    assert_eq!(here.write_vectored(&[IoSlice::new(b"12"), IoSlice::new(b"345")]).unwrap(), 5);
    let (mut three, mut more) = ([0; 3], [0; 3]);
    let mut parts = [IoSliceMut::new(&mut three), IoSliceMut::new(&mut more)];
    assert_eq!(there.read_vectored(&mut parts).unwrap(), 5);
    assert_eq!((&three, &more), (b"123", b"45\0"));
}

fn unix_incoming_yields_connections(beside: Beside) {
    let place = Place::new();
    let listener = UnixListener::bind(place.at("s")).unwrap();
    let path = place.at("s");
    let connects = beside.spawn(move || {
        (0..3u8).for_each(|n| UnixStream::connect(&path).unwrap().write_all(&[n]).unwrap());
    });
    for (n, stream) in (0..3).zip(listener.incoming()) {
        let mut all = Vec::new();
        stream.unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all, [n]);
    }
    connects.result();
}

fn datagram_pair(beside: Beside) {
    let (here, there) = UnixDatagram::pair().unwrap();
    let sends = beside.spawn(move || (there.send(b"one").unwrap(), there.send(b"").unwrap()));
    let mut buffer = [0; 9];
    assert_eq!((here.recv(&mut buffer).unwrap(), &buffer[..3]), (3, &b"one"[..]));
    assert_eq!(here.recv(&mut buffer).unwrap(), 0, "an empty datagram");
    sends.result();
}

fn datagrams_by_path(beside: Beside) {
    let place = Place::new();
    let here = UnixDatagram::bind(place.at("here")).unwrap();
    let (path, own) = (place.at("here"), place.at("there"));
    beside.spawn(move || UnixDatagram::bind(own).unwrap().send_to(b"abc", path).unwrap()).result();
    let (n, sender) = here.recv_from(&mut [0; 9]).unwrap();
    assert_eq!((n, sender.as_pathname()), (3, Some(&*place.at("there"))));
    UnixDatagram::unbound().unwrap().send_to(b"x", place.at("here")).unwrap();
    assert!(here.recv_from(&mut [0; 9]).unwrap().1.is_unnamed());
}

fn datagram_to_a_missing_path(_: Beside) {
    let place = Place::new();
    let socket = UnixDatagram::unbound().unwrap();
    let missing = place.at("none");
    assert_eq!(socket.send_to(b"x", &missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(socket.connect(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(socket.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
}

fn datagram_read_times_out(_: Beside) {
    let (here, _there) = UnixDatagram::pair().unwrap();
    here.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(here.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let zero = here.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(zero.kind(), ErrorKind::InvalidInput);
}

fn datagram_clone_receives(beside: Beside) {
    let (here, there) = UnixDatagram::pair().unwrap();
    let clone = here.try_clone().unwrap();
    let receives = beside.spawn(move || clone.recv(&mut [0; 4]).unwrap());
    there.send(b"ab").unwrap();
    assert_eq!(receives.result(), 2);
    drop(here);
}

fn connected_datagrams(_: Beside) {
    let place = Place::new();
    let here = UnixDatagram::bind(place.at("here")).unwrap();
    let there = UnixDatagram::unbound().unwrap();
    there.connect(place.at("here")).unwrap();
    assert_eq!(there.peer_addr().unwrap().as_pathname(), Some(&*place.at("here")));
    there.send(b"12").unwrap();
    assert_eq!(here.recv(&mut [0; 4]).unwrap(), 2);
}

fn datagram_shutdown_ends_a_read(beside: Beside) {
    let (here, there) = UnixDatagram::pair().unwrap();
    let clone = here.try_clone().unwrap();
    let reads = beside.spawn(move || clone.recv(&mut [0; 4]).unwrap());
    here.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reads.result(), 0);
    drop(there);
}
