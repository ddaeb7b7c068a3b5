//! Sockets of messages (`SOCK_SEQPACKET`) in the types of streams, which accept every descriptor.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use kumihimo_io::net::{UnixListener, UnixStream};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Env;
use super::unix::Place;

fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    (UnixStream::from(a), UnixStream::from(b))
}

/// Three packets arrive at once, after the reader has begun to wait. Each read takes one of them.
fn take_three(mut reader: UnixStream, mut writer: UnixStream, env: Env) {
    let writer = env.spawn(move || {
        for n in 1..=3 {
            writer.write_all(&vec![n; usize::from(n)]).unwrap();
        }
        // Keeps the socket open until the reader has all packets: its end would be an event.
        assert_eq!(writer.read(&mut [0]).unwrap(), 1);
    });
    let mut buf = [0; 64];
    assert_eq!(reader.read(&mut buf).unwrap(), 1);
    let (mut one, mut two) = ([0; 1], [0; 9]);
    let n = reader.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]);
    assert_eq!((n.unwrap(), one, two[0]), (2, [2], 2));
    assert_eq!(reader.read(&mut buf).unwrap(), 3);
    reader.write_all(b"x").unwrap();
    writer();
}

pub fn reads_take_one_packet_each(env: Env) {
    let (a, b) = pair();
    take_three(a, b, env);
}

pub fn reads_of_a_clone_take_one_packet_each(env: Env) {
    let (a, b) = pair();
    let clone = a.try_clone().unwrap();
    take_three(clone, b, env);
    drop(a);
}

pub fn accepted_sockets_have_packets_too(env: Env) {
    let place = Place::new();
    let listener: OwnedFd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let address = SocketAddrUnix::new(&place.0).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let listener = UnixListener::from(listener);
    let writer = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::connect(&writer, &address).unwrap();
    let (reader, _) = listener.accept().unwrap();
    take_three(reader, UnixStream::from(writer), env);
}

/// Sends of several writers are never merged into one packet.
pub fn writers_send_a_packet_each(env: Env) {
    const WRITERS: u8 = 8;
    const EACH: usize = 200;
    let (mut reader, writer) = pair();
    let writer = Arc::new(writer);
    let writers: Vec<_> = (1..=WRITERS)
        .map(|n| {
            let writer = writer.clone();
            env.spawn(move || {
                for _ in 0..EACH {
                    let (first, rest) = ([n; 1], [n; 16]);
                    let parts = [IoSlice::new(&first), IoSlice::new(&rest[..usize::from(n)])];
                    assert_eq!((&*writer).write_vectored(&parts).unwrap(), usize::from(n) + 1);
                    assert_eq!((&*writer).write(&rest[..usize::from(n)]).unwrap(), usize::from(n));
                }
            })
        })
        .collect();
    let mut buf = [0; 64];
    for _ in 0..usize::from(WRITERS) * EACH * 2 {
        let n = reader.read(&mut buf).unwrap();
        let writer = usize::from(buf[0]);
        assert!(n == writer || n == writer + 1, "{n} bytes of writer {writer}");
        assert!(buf[..n].iter().all(|byte| usize::from(*byte) == writer), "{:?}", &buf[..n]);
    }
    writers.into_iter().for_each(|writer| writer());
}

pub fn read_of_nothing_takes_a_packet(_: Env) {
    let (mut reader, mut writer) = pair();
    writer.write_all(b"first").unwrap();
    writer.write_all(b"second").unwrap();
    assert_eq!(reader.read(&mut []).unwrap(), 0);
    let mut buf = [0; 64];
    assert_eq!(reader.read(&mut buf).unwrap(), 6);
}
