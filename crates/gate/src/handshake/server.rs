//! The server's half of the handshake: clients that have connected wait here until they have sent
//! their hello.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use kumihimo_machine::socket::peer_socket::PeerSocket;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::handshake::record::{Hello, Welcome, refusal};
use crate::wire::packet::{Packet, receive, send};
use crate::wire::peer::Peer;

/// Time for a client to send its hello.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most pending clients. One more evicts the oldest ...
const MAX_PENDING: usize = 256;
/// ... once that has had this time.
const GRACE: Duration = Duration::from_millis(50);

/// A client that has connected and not yet sent its hello.
pub(crate) struct PendingClient {
    pub(crate) socket: PeerSocket,
    pub(crate) peer: Peer,
    connected: Instant,
}

/// The pending clients by number, and so in the order in which they connected.
#[derive(Default)]
pub(crate) struct PendingClients(BTreeMap<u64, PendingClient>);

impl PendingClients {
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.contains_key(&number)
    }

    /// Adds a client that has connected at `now`.
    pub(crate) fn insert(&mut self, number: u64, socket: PeerSocket, peer: Peer, now: Instant) {
        self.0.insert(number, PendingClient { socket, peer, connected: now });
    }

    /// The time at which the oldest client expires.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.first_key_value().map(|(_, first)| first.connected + PATIENCE)
    }

    /// Makes room for one more. Returns the client that is evicted for it, which is to be refused
    /// with the error.
    ///
    /// # Errors
    /// Where all have connected within the grace period: the time at which the oldest has had it.
    pub(crate) fn make_room(
        &mut self,
        now: Instant,
    ) -> Result<Option<(PendingClient, Error)>, Instant> {
        if self.0.len() < MAX_PENDING {
            return Ok(None);
        }
        let Some(first) = self.0.first_entry() else { return Ok(None) };
        let until = first.get().connected + GRACE;
        if until > now {
            return Err(until);
        }
        let text = "too many are about to connect: try again";
        Ok(Some((first.remove(), Error::new(ErrorKind::Exhausted, text))))
    }

    /// Removes a client whose time is over, which is to be refused with the error.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<(PendingClient, Error)> {
        let first = self.0.first_entry()?;
        if first.get().connected + PATIENCE > now {
            return None;
        }
        let text = format!("a caller says what it wants within {} s", PATIENCE.as_secs());
        Some((first.remove(), Error::new(ErrorKind::TimedOut, text)))
    }

    /// Receives the hello of a client, which is no longer pending then. `None`: it has not come
    /// yet, or the client is gone.
    pub(crate) fn receive_hello(
        &mut self,
        number: u64,
    ) -> Option<(PendingClient, Result<Hello, Error>)> {
        let received = receive(&self.0.get(&number)?.socket, false);
        if matches!(received, Err(Errno::AGAIN | Errno::INTR)) {
            return None;
        }
        let client = self.0.remove(&number)?;
        let wrong =
            |what: &str| Err(Error::new(ErrorKind::Malformed, format!("the caller sent {what}")));
        let hello = match received {
            Ok(Packet::Record(record)) if record.descriptor.is_none() => {
                Hello::decode(record.bytes())
            }
            Ok(Packet::Record(_) | Packet::NoRoom) => wrong("a descriptor with its first record"),
            Ok(Packet::Wrong(what)) => wrong(what),
            Ok(Packet::End) | Err(_) => return None,
        };
        Some((client, hello))
    }
}

/// Refuses a client. One that is gone does not learn of it.
pub(crate) fn refuse(socket: &PeerSocket, why: &Error) {
    let _ = send(socket, &refusal(why), None, false);
}

/// Admits a client: sends it its welcome and the lane's memory.
///
/// # Errors
/// The client is gone, or has no room for the descriptor; it then sees the end of the connection.
pub(crate) fn admit(
    socket: &mut PeerSocket,
    welcome: &Welcome,
    lane: OwnedFd,
) -> Result<(), Errno> {
    // It may pass regions from now on.
    socket.admit_descriptors();
    send(&*socket, &welcome.encode(), Some(lane.as_fd()), false)
}
