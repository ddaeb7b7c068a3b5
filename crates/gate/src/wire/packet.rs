//! One record over a SOCK_SEQPACKET socket, and at most one descriptor with it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kumihimo_machine::socket::disposal;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};

use crate::wire::peer::Peer;

/// The longest record: what is longer is none of ours.
pub(crate) const LONGEST: usize = 1024;
/// Room for more descriptors than a valid record has, so that an excess is detected.
const DESCRIPTORS: usize = 2;

/// A received packet.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is on the stack, one at a time, and most are rings: no allocation"
)]
pub(crate) enum Packet {
    /// The other side has closed, or ended.
    End,
    Record(Record),
    /// It is cut off, has more descriptors than any record of ours, or one that is no memory. It
    /// is still in the queue, and the socket is to be dropped.
    Wrong(&'static str),
    /// A descriptor came that this process has no room for. It is still in the queue, too.
    NoRoom,
}

#[derive(Debug)]
pub(crate) struct Record {
    bytes: [u8; LONGEST],
    length: usize,
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Record {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Sends a record whole. A closed peer causes no signal.
pub(crate) fn send(
    socket: impl AsFd,
    record: &[u8],
    with: Option<BorrowedFd<'_>>,
    wait: bool,
) -> Result<(), Errno> {
    let flags = SendFlags::NOSIGNAL | if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let descriptors = with.map(|fd| [fd]);
    if let Some(descriptors) = &descriptors {
        let has_room = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(has_room);
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(record)], &mut ancillary, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Receives the next record. `wait`: as long as the socket's time limit allows, or until a signal.
///
/// The record is looked at first, and removed from the queue only if no descriptor of the peer's
/// has to be closed by that whose close could block: see [`kumihimo_machine::socket::peer_socket`].
pub(crate) fn receive(socket: impl AsFd, wait: bool) -> Result<Packet, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    let flags = flags | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let mut record = Record { bytes: [0; LONGEST], length: 0, descriptor: None };
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let mut again = true;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut record.bytes)], &mut ancillary, flags) {
            // The peer closed it before all was read there. This is reported once and first, though
            // records of the peer may still be queued.
            Err(Errno::CONNRESET) if again => again = false,
            Err(Errno::CONNRESET) => return Ok(Packet::End),
            Err(e) => return Err(e),
            Ok(received) => break received,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(these) = message {
            descriptors.extend(these);
        }
    }
    let truncated = received.flags.contains(ReturnFlags::CTRUNC);
    let wrong = match (received.bytes, &descriptors[..]) {
        _ if received.flags.contains(ReturnFlags::TRUNC) => {
            Packet::Wrong("a record that is too long")
        }
        (_, []) if truncated => Packet::NoRoom,
        (_, all) if truncated || all.len() > 1 => {
            Packet::Wrong("a record with several descriptors")
        }
        (0, _) => Packet::End,
        (_, [one]) if !closes_at_once(one) => {
            Packet::Wrong("a descriptor that is not shared memory")
        }
        (length, _) => {
            let removed = remove(&socket);
            debug_assert!(removed.is_ok(), "{removed:?}");
            return Ok(Packet::Record(Record { length, descriptor: descriptors.pop(), ..record }));
        }
    };
    if !descriptors.is_empty() {
        disposal::dispose(Peer::of(&socket).map_or(u32::MAX, |peer| peer.uid), descriptors);
    }
    Ok(wrong)
}

/// Removes the first record, whole. The peer may have closed the socket since the record was looked
/// at; that is reported once, and removes nothing.
fn remove(socket: impl AsFd) -> rustix::io::Result<()> {
    let once = || recv(&socket, &mut [0_u8; 0][..], RecvFlags::DONTWAIT).map(drop);
    match once() {
        Err(Errno::CONNRESET) => once(),
        removed => removed,
    }
}

/// Whether close(2) of this descriptor cannot block: only files in memory have seals.
fn closes_at_once(fd: &OwnedFd) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok()
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn record_is_removed_although_the_peer_has_closed_meanwhile() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        send(&theirs, b"only", None, false).expect("room");
        // The peer does not read this, so its close resets the connection.
        send(&ours, b"unread", None, false).expect("room");
        drop(theirs);
        assert_eq!(remove(&ours), Ok(()));
        assert!(matches!(receive(&ours, false), Ok(Packet::End)));
    }
}
