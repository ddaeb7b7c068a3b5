//! The client's half of the handshake.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo_machine::gates::Server;
use kumihimo_machine::socket::descriptors::{Descriptors, Kept};
use kumihimo_machine::socket::peer_socket::PeerSocket;
use kumihimo_machine::{Error as Unreachable, Machine};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::error::{Error, ErrorKind};
use crate::handshake::record::{Hello, Welcome};
use crate::wire::packet::{Packet, receive, send};
use crate::wire::peer::Peer;

/// A server that ends just as it is asked has a successor or none; the lookup is repeated so often.
const ATTEMPTS: u32 = 5;

/// A connection whose server has admitted this client. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) welcome: Welcome,
    /// The memory of the lane, unchecked: size and seals are the other side's word.
    pub(crate) lane: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) socket: PeerSocket,
}

/// Finds the gate and performs the handshake. Blocks the kernel thread, for `within` at most.
///
/// # Errors
/// `NotFound`, `NotPermitted`, `Version`, `TimedOut`, `Malformed`, `Exhausted`, `Invalid`, `Io`;
/// what the server refuses with.
pub(crate) fn connect(
    machine: &Machine,
    descriptors: &Arc<Descriptors>,
    hello: &Hello,
    within: Duration,
) -> Result<Established, Error> {
    let name = &hello.name;
    let not_found = || {
        let path = machine.path().display();
        Error::new(
            ErrorKind::NotFound,
            format!("nobody serves a gate {name:?} in {path}: start its server"),
        )
    };
    let deadline = Instant::now() + within;
    for _ in 0..ATTEMPTS {
        let Some(number) = machine.gate(name)? else { return Err(not_found()) };
        match machine.connect(number, deadline) {
            Ok(Server { socket, uid, pid }) => {
                let socket = PeerSocket::new(Kept::new(socket, descriptors), uid);
                return shake_hands(socket, Peer { uid, pid }, hello, deadline);
            }
            Err(Unreachable::Gone(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(not_found())
}

fn shake_hands(
    socket: PeerSocket,
    peer: Peer,
    hello: &Hello,
    deadline: Instant,
) -> Result<Established, Error> {
    let name = &hello.name;
    let whose = peer.pid.map_or("its process".to_owned(), |pid| format!("process {pid}"));
    let io = |e: Errno| Error::of_system(&format!("gate {name:?}"), e);
    let gone = || {
        Error::new(
            ErrorKind::Gone,
            format!("the server of gate {name:?} ({whose}) has ended: connect again"),
        )
    };
    match send(&socket, &hello.encode(), None, false) {
        // The server may have sent a refusal before it closed the socket.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(e) => return Err(io(e)),
    }
    let record = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let late = || {
            let text = format!(
                "gate {name:?}: {whose} did not answer in time: it is stopped, or very busy"
            );
            Error::new(ErrorKind::TimedOut, text)
        };
        if left.is_zero() {
            return Err(late());
        }
        set_socket_timeout(&socket, Timeout::Recv, Some(left)).map_err(io)?;
        match receive(&socket, true) {
            Ok(Packet::Record(record)) => break record,
            Ok(Packet::End) => return Err(gone()),
            Ok(Packet::NoRoom) => {
                let text = format!(
                    "gate {name:?}: no descriptor is left for its memory: raise the limit (ulimit -n)"
                );
                return Err(Error::new(ErrorKind::Exhausted, text));
            }
            Ok(Packet::Wrong(what)) => {
                return Err(Error::new(
                    ErrorKind::Malformed,
                    format!("gate {name:?}: {whose} sent {what}"),
                ));
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => return Err(io(e)),
        }
    };
    let welcome = Welcome::decode(record.bytes())?;
    let lane = record.descriptor.ok_or_else(|| {
        Error::new(
            ErrorKind::Malformed,
            format!("gate {name:?}: {whose} lets us in without passing memory"),
        )
    })?;
    Ok(Established { welcome, lane, peer, socket })
}
