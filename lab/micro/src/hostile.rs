//! `hostile`: a client of the gate `bench` that passes descriptors whose close(2) blocks. It reads
//! `on` and `off` from its standard input, and answers each with the number of such descriptors
//! that are open in the server.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use kumihimo::gate::RawGate;
use kumihimo::thread;
use kumihimo_bench_kit::Request;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, getpeername, sendmsg, sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Links that are closed at once. A user with 16 closings under way is admitted to no further
/// connection, and the others have the same user here.
const LINKS: usize = 12;
/// Time for which close(2) blocks unless the other end of the connection is closed before.
const LINGER: Duration = Duration::from_secs(120);
/// First byte of a record that passes a region; its number and its length follow.
const REGION: u8 = 0x11;

/// A link that was misused, and the connection whose descriptor was passed over it.
struct Misused {
    /// Closed first: the connection is reset, and no close(2) of it blocks any longer.
    listener: TcpListener,
    stream: TcpStream,
    gate: RawGate,
}

pub fn hostile(_: &Request) {
    let mut misused = Vec::new();
    println!("ready");
    loop {
        let mut line = String::new();
        let read = thread::blocking(|| io::stdin().lock().read_line(&mut line));
        match (read.expect("stdin"), line.trim()) {
            (0, _) => return,
            (_, "on") => misused.extend((0..LINKS).map(|_| misuse().expect("a link"))),
            (_, "off") => misused.drain(..).for_each(end),
            (_, other) => panic!("{other:?}: expected `on` or `off`"),
        }
        println!("{}", misused.len());
    }
}

/// Connects, and passes a descriptor whose close blocks.
fn misuse() -> io::Result<Misused> {
    let before = links()?;
    let gate = RawGate::connect("bench").map_err(io::Error::other)?;
    let new = links()?.into_iter().find(|link| !before.contains(link));
    let (number, _) = new.ok_or_else(|| io::Error::other("the link has no socket"))?;
    let link = own(number)?;
    let (listener, stream) = lingering()?;
    let record = [&[REGION][..], &[0; 16]].concat();
    send(link.as_fd(), &record, stream.as_fd())?;
    Ok(Misused { listener, stream, gate })
}

fn end(misused: Misused) {
    let Misused { listener, stream, gate } = misused;
    drop(listener);
    drop((stream, gate));
}

/// A connection that lingers with unsent data, because nothing reads from its other end.
fn lingering() -> io::Result<(TcpListener, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    stream.set_nonblocking(true)?;
    while stream.write(&[0; 1 << 16]).is_ok() {}
    sockopt::set_socket_linger(&stream, Some(LINGER))?;
    Ok((listener, stream))
}

/// Sockets of this process's links: descriptor and name.
fn links() -> io::Result<BTreeSet<(RawFd, String)>> {
    let mut links = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(name) = fs::read_link(entry.path()) else { continue };
        if let Ok(socket) = own(number)
            && sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET)
            && getpeername(&socket).is_ok()
        {
            links.insert((number, name.display().to_string()));
        }
    }
    Ok(links)
}

/// A duplicate of descriptor `number` of this process.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    let me: Pid = getpid();
    let process = pidfd_open(me, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

fn send(link: BorrowedFd<'_>, record: &[u8], with: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); 64];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let with = [with];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&with)), "there is room for one");
    sendmsg(link, &[IoSlice::new(record)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
