use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use super::*;
use crate::socket::descriptors::Descriptors;

/// No peer of these tests has blocked disposals.
const UID: u32 = 77_100;

fn pair(of: SocketType) -> (PeerSocket, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (here, there) = socketpair(AddressFamily::UNIX, of, flags, None).expect("sockets");
    (PeerSocket::new(Kept::new(here, &Descriptors::new()), UID), there)
}

fn pass(to: &OwnedFd, bytes: &[u8], fd: &impl AsFd) -> Result<usize, Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let fds = [fd.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}

fn send(to: &OwnedFd, bytes: &[u8]) {
    assert_eq!(rustix::net::send(to, bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
}

/// A descriptor, and the other end, whose end shows that it was closed.
fn watched() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("sockets")
}

fn is_closed(watching: &mut UnixStream) -> bool {
    watching.set_nonblocking(true).expect("a socket");
    watching.write(b"x").is_err()
}

#[test]
fn bytes_before_a_descriptor_are_received_without_it() {
    let (here, there) = pair(SocketType::STREAM);
    let (passed, mut watching) = watched();
    send(&there, b"plain ");
    pass(&there, b"with", &passed).expect("a socket takes it");
    drop(passed);
    let mut bytes = [0; 64];
    assert!(matches!(here.receive(&mut bytes), Ok(Pending::Plain(6) | Pending::Descriptor)));
    loop {
        match here.receive(&mut bytes) {
            Ok(Pending::Plain(n)) => assert!(n <= 6),
            Ok(Pending::Descriptor) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(!is_closed(&mut watching), "it is still in the queue");
}

#[test]
fn queue_with_a_descriptor_is_closed_by_another_thread() {
    for of in [SocketType::STREAM, SocketType::SEQPACKET] {
        let (here, there) = pair(of);
        let (passed, mut watching) = watched();
        if of == SocketType::SEQPACKET {
            // An empty message is not the end.
            send(&there, b"");
        }
        send(&there, b"plain");
        pass(&there, b"with", &passed).expect("a socket takes it");
        drop(passed);
        let socket = here.socket.as_ref().expect("not dropped");
        assert!(!is_free_of_descriptors(socket));
        drop(here);
        while !is_closed(&mut watching) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn queue_without_descriptors_is_closed_at_once() {
    for of in [SocketType::STREAM, SocketType::SEQPACKET] {
        for ended in [false, true] {
            let (here, there) = pair(of);
            (0..20).for_each(|_| send(&there, b"plain"));
            let there = Some(there).filter(|_| !ended);
            assert!(is_free_of_descriptors(here.socket.as_ref().expect("not dropped")));
            drop((here, there));
        }
    }
}

#[test]
fn kernel_refuses_descriptors_where_it_can() {
    let (socket, there) = pair(SocketType::STREAM);
    set_pass_rights(&socket, false);
    let mut socket = PeerSocket::new(
        Kept::new(socket.as_fd().try_clone_to_owned().expect("a descriptor"), &Descriptors::new()),
        UID,
    );
    // Linux 6.16.
    if !socket.refuses_descriptors() {
        return;
    }
    assert_eq!(pass(&there, b"x", &socket), Err(Errno::PERM));
    socket.admit_descriptors();
    assert!(!socket.refuses_descriptors());
    assert_eq!(pass(&there, b"x", &socket), Ok(1));
}
