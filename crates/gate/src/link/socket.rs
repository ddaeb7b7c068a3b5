//! A link: the socket between a caller's address space and one that serves a gate, after the
//! handshake. Through it go rings, memory by descriptor, and the news that the other side is gone;
//! requests and replies go through the lane.
//!
//! ```text
//! 0  what it is u8: 0x10 ring; 0x11 region: id u64, length u64, and a descriptor;
//!    0x12 forget region: id u64; 0x13 bye: error
//! ```

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumihimo_machine::socket::descriptors::Descriptors;
use kumihimo_machine::socket::peer_socket::PeerSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::error::{Error, ErrorKind};
use crate::wire::error_record::{decode_error, encode_error};
use crate::wire::packet::{Record, send};
use crate::wire::peer::Peer;

/// Time to wait for room in a full socket. The other side's link poller only receives.
const PATIENCE: Duration = Duration::from_secs(5);

const RING: u8 = 0x10;
const REGION: u8 = 0x11;
const FORGET: u8 = 0x12;
const BYE: u8 = 0x13;

/// A record received over a link.
#[derive(Debug)]
pub(crate) enum LinkRecord {
    Ring,
    Region { id: u64, length: u64 },
    Forget { id: u64 },
    Bye(Error),
}

/// The record, if it follows the protocol. Whether a descriptor is with it is part of that.
pub(crate) fn parse(record: &Record) -> Option<LinkRecord> {
    let (bytes, with) = (record.bytes(), record.descriptor.is_some());
    let number = |at: usize| {
        bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map(u64::from_le_bytes)
    };
    match (bytes[0], bytes.len(), with) {
        (RING, 1, false) => Some(LinkRecord::Ring),
        (REGION, 17, true) => Some(LinkRecord::Region { id: number(1)?, length: number(9)? }),
        (FORGET, 9, false) => Some(LinkRecord::Forget { id: number(1)? }),
        (BYE, _, false) => decode_error(&bytes[1..]).map(LinkRecord::Bye),
        _ => None,
    }
}

/// Has the link poller, which is above this module, look at the link of this number.
pub(crate) struct Look(pub(crate) Box<dyn Fn(u64) + Send + Sync>);

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
}

/// The socket of a link, and the process at its other end.
#[derive(Debug)]
pub(crate) struct Connection {
    /// This process's number for it.
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    pub(crate) socket: ManuallyDrop<PeerSocket>,
    /// This side has ended it.
    pub(crate) closed: AtomicBool,
    pub(crate) descriptors: Arc<Descriptors>,
    /// Inode of the socket, which identifies it.
    pub(crate) inode: u64,
    /// Has the link poller look at the link.
    pub(crate) look: Look,
}

pub(crate) fn inode(socket: &impl AsFd) -> u64 {
    rustix::fs::fstat(socket).map_or(0, |stat| stat.st_ino)
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A number that is another descriptor's by now is not ours to close.
        if self.owns_descriptor() {
            // SAFETY: once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

impl Connection {
    /// Whether the descriptor still refers to the socket. Code in this process that closes
    /// descriptors of others causes no event of epoll(7).
    pub(crate) fn owns_descriptor(&self) -> bool {
        inode(&*self.socket) == self.inode
    }

    /// Ends the link. The link poller detects its end and calls
    /// [`LinkHandler::closed`](crate::link::link_poller::LinkHandler::closed).
    pub(crate) fn close(&self, why: &Error) {
        if self.descriptors.are_forgotten() || self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut record = vec![BYE];
        encode_error(&mut record, why);
        // A peer that does not receive it sees the end all the same.
        let _ = send(&*self.socket, &record, None, false);
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

/// This side's hold of a link. Dropping it closes the link.
///
/// In a fork's child it is the parent's: nothing is sent, and dropping it does nothing.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Arc<Connection>,
}

impl Link {
    /// This process's number for it, which no other link gets.
    pub(crate) fn id(&self) -> u64 {
        self.connection.id
    }

    pub(crate) fn peer(&self) -> Peer {
        self.connection.peer
    }

    /// Wakes the other side's link poller, which calls `LinkHandler::rung`. One system call, which
    /// never waits: a full socket holds rings that are not yet received, and the end of the other
    /// side is reported by `LinkHandler::closed`.
    pub(crate) fn ring(&self) {
        if !self.connection.descriptors.are_forgotten() {
            let _ = send(&*self.connection.socket, &[RING], None, false);
        }
    }

    /// Passes memory to the other side's `LinkHandler::region_passed`. Blocks the kernel thread
    /// while the socket is full, 5 s at most. A request that names the region may arrive before the
    /// region does.
    ///
    /// # Errors
    /// `Gone`, `TimedOut`; `Exhausted`: too many descriptors are on their way.
    pub(crate) fn pass_region(
        &self,
        id: u64,
        fd: BorrowedFd<'_>,
        length: u64,
    ) -> Result<(), Error> {
        let mut record = vec![REGION];
        record.extend_from_slice(&id.to_le_bytes());
        record.extend_from_slice(&length.to_le_bytes());
        self.send_record(&record, Some(fd))
    }

    /// Tells the other side's `LinkHandler::region_forgotten` that a region is no longer used.
    /// Blocks as [`pass_region`](Link::pass_region) does.
    ///
    /// # Errors
    /// `Gone`, `TimedOut`.
    pub(crate) fn forget_region(&self, id: u64) -> Result<(), Error> {
        let mut record = vec![FORGET];
        record.extend_from_slice(&id.to_le_bytes());
        self.send_record(&record, None)
    }

    /// Ends the link, and sends the reason to the other side. `LinkHandler::closed` is called on
    /// both sides. Does not wait.
    pub(crate) fn close(&self, why: &Error) {
        self.connection.close(why);
    }

    /// Has the link poller receive what the other side has sent up to now.
    pub(crate) fn look(&self) {
        (self.connection.look.0)(self.id());
    }

    fn send_record(&self, record: &[u8], with: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        let gone = |why: &str| {
            Error::new(ErrorKind::Gone, format!("the other side of link {} {why}", self.id()))
        };
        if self.connection.descriptors.are_forgotten() {
            return Err(gone("is the parent's: a fork's child connects anew, after exec"));
        }
        loop {
            match send(&*self.connection.socket, record, with, false) {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                    return Err(gone("has ended"));
                }
                Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                    let text = format!(
                        "link {}: too many descriptors are on their way to the other side",
                        self.id()
                    );
                    return Err(Error::new(ErrorKind::Exhausted, text));
                }
                Err(e) => {
                    return Err(Error::new(ErrorKind::Io, format!("link {}: {e}", self.id())));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&*self.connection.socket, PollFlags::OUT)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => {
                    let text = format!(
                        "the other side of link {} takes nothing: it is stopped",
                        self.id()
                    );
                    return Err(Error::new(ErrorKind::TimedOut, text));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => {
                    return Err(Error::new(ErrorKind::Io, format!("link {}: {e}", self.id())));
                }
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connection.close(&Error::new(ErrorKind::Gone, "the other side has closed the link"));
    }
}
