//! UDP.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use kumihimo::net::UdpSocket;

use crate::Beside;
use crate::beside::behaviours;

const SOON: Duration = Duration::from_millis(10);

behaviours!(
    datagrams_keep_their_boundaries,
    datagram_tells_its_sender,
    long_datagram_is_cut,
    connected_socket_sends_and_receives,
    connected_socket_ignores_others,
    send_without_a_peer_fails,
    port_is_bound_once,
    clone_receives_too,
    udp_read_times_out,
    udp_timeouts_are_stored,
    udp_timeout_of_zero_is_invalid,
    udp_peek_leaves_the_datagram,
    udp_nonblocking_would_block,
    udp_options_are_stored,
    too_long_datagram_is_refused,
    send_without_an_address_is_invalid,
);

fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

fn datagrams_keep_their_boundaries(beside: Beside) {
    let ((here, addr), (there, _)) = (socket(), socket());
    let sends = beside.spawn(move || {
        for part in [&b"one"[..], b"", b"three"] {
            assert_eq!(there.send_to(part, addr).unwrap(), part.len());
        }
    });
    let mut buffer = [0; 9];
    let lengths = [(); 3].map(|()| here.recv_from(&mut buffer).unwrap().0);
    assert_eq!((lengths, &buffer[..5]), ([3, 0, 5], &b"three"[..]));
    sends.result();
}

fn datagram_tells_its_sender(beside: Beside) {
    let ((here, addr), (there, sender)) = (socket(), socket());
    beside.spawn(move || there.send_to(b"x", addr).unwrap()).result();
    assert_eq!(here.recv_from(&mut [0]).unwrap(), (1, sender));
}

fn long_datagram_is_cut(_: Beside) {
    let ((here, addr), (there, _)) = (socket(), socket());
    there.send_to(b"abcdef", addr).unwrap();
    there.send_to(b"g", addr).unwrap();
    let mut two = [0; 2];
    assert_eq!((here.recv(&mut two).unwrap(), &two), (2, b"ab"));
    assert_eq!((here.recv(&mut two).unwrap(), two[0]), (1, b'g'));
}

fn connected_socket_sends_and_receives(beside: Beside) {
    let ((here, here_addr), (there, there_addr)) = (socket(), socket());
    here.connect(there_addr).unwrap();
    there.connect(here_addr).unwrap();
    assert_eq!(here.peer_addr().unwrap(), there_addr);
    let answers = beside.spawn(move || {
        let mut byte = [0];
        assert_eq!(there.recv(&mut byte).unwrap(), 1);
        there.send(&[byte[0] + 1]).unwrap();
    });
    here.send(&[4]).unwrap();
    let mut byte = [0];
    assert_eq!((here.recv(&mut byte).unwrap(), byte), (1, [5]));
    answers.result();
}

fn connected_socket_ignores_others(_: Beside) {
    let ((here, addr), (friend, friend_addr), (other, _)) = (socket(), socket(), socket());
    here.connect(friend_addr).unwrap();
    other.send_to(b"other", addr).unwrap();
    friend.send_to(b"friend", addr).unwrap();
    let mut buffer = [0; 9];
    assert_eq!(here.recv_from(&mut buffer).unwrap(), (6, friend_addr));
}

fn send_without_a_peer_fails(_: Beside) {
    let (here, _) = socket();
    assert!(here.send(b"x").is_err());
    assert_eq!(here.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
}

fn port_is_bound_once(beside: Beside) {
    let (_here, addr) = socket();
    let again = beside.spawn(move || UdpSocket::bind(addr).map(drop).unwrap_err().kind());
    assert_eq!(again.result(), ErrorKind::AddrInUse);
}

fn clone_receives_too(beside: Beside) {
    let ((here, addr), (there, _)) = (socket(), socket());
    let clone = here.try_clone().unwrap();
    drop(here);
    let receives = beside.spawn(move || clone.recv(&mut [0; 4]).unwrap());
    there.send_to(b"abc", addr).unwrap();
    assert_eq!(receives.result(), 3);
}

fn udp_read_times_out(_: Beside) {
    let ((here, addr), (there, _)) = (socket(), socket());
    here.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(here.recv_from(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(here.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    there.send_to(b"x", addr).unwrap();
    here.set_read_timeout(None).unwrap();
    assert_eq!(here.recv(&mut [0]).unwrap(), 1);
}

fn udp_timeouts_are_stored(_: Beside) {
    let (here, _) = socket();
    assert_eq!((here.read_timeout().unwrap(), here.write_timeout().unwrap()), (None, None));
    here.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    here.set_write_timeout(Some(Duration::from_secs(6))).unwrap();
    let clone = here.try_clone().unwrap();
    assert_eq!(clone.read_timeout().unwrap(), Some(Duration::from_secs(5)));
    assert_eq!(clone.write_timeout().unwrap(), Some(Duration::from_secs(6)));
}

fn udp_timeout_of_zero_is_invalid(_: Beside) {
    let (here, _) = socket();
    let zero = Some(Duration::ZERO);
    assert_eq!(here.set_read_timeout(zero).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(here.set_write_timeout(zero).unwrap_err().kind(), ErrorKind::InvalidInput);
}

fn udp_peek_leaves_the_datagram(_: Beside) {
    let ((here, addr), (there, sender)) = (socket(), socket());
    there.send_to(b"abc", addr).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(here.peek_from(&mut buffer).unwrap(), (3, sender));
    assert_eq!(here.peek(&mut buffer).unwrap(), 3);
    assert_eq!(here.recv(&mut buffer).unwrap(), 3);
    assert_eq!(&buffer, b"abc\0");
}

fn udp_nonblocking_would_block(_: Beside) {
    let (here, _) = socket();
    here.set_nonblocking(true).unwrap();
    assert_eq!(here.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn udp_options_are_stored(_: Beside) {
    let (here, _) = socket();
    here.set_ttl(44).unwrap();
    here.set_broadcast(true).unwrap();
    here.set_multicast_loop_v4(false).unwrap();
    here.set_multicast_ttl_v4(9).unwrap();
    assert_eq!((here.ttl().unwrap(), here.broadcast().unwrap()), (44, true));
    assert_eq!((here.multicast_loop_v4().unwrap(), here.multicast_ttl_v4().unwrap()), (false, 9));
    assert!(here.take_error().unwrap().is_none());
}

fn too_long_datagram_is_refused(_: Beside) {
    let ((_here, addr), (there, _)) = (socket(), socket());
    let refused = there.send_to(&[0; 70_000], addr).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
}

fn send_without_an_address_is_invalid(_: Beside) {
    let (here, _) = socket();
    let none: [SocketAddr; 0] = [];
    assert_eq!(here.send_to(b"x", &none[..]).unwrap_err().kind(), ErrorKind::InvalidInput);
}
