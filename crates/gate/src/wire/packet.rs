//! One record over a SOCK_SEQPACKET socket, and at most one descriptor with it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The longest record: what is longer is none of ours.
pub(crate) const LONGEST: usize = 1024;
/// Room for more descriptors than a valid record has, so that an excess is detected; the kernel
/// closes those beyond.
const DESCRIPTORS: usize = 4;

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
    /// It is cut off or has more descriptors than any record of ours. Those that came are closed.
    Wrong(&'static str),
    /// A descriptor came that this process has no room for.
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
pub(crate) fn receive(socket: impl AsFd, wait: bool) -> Result<Packet, Errno> {
    let flags =
        RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
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
    Ok(match (received.bytes, descriptors.len()) {
        _ if received.flags.contains(ReturnFlags::TRUNC) => {
            Packet::Wrong("a record that is too long")
        }
        (_, 0) if truncated => Packet::NoRoom,
        (_, n) if truncated || n > 1 => Packet::Wrong("a record with several descriptors"),
        (0, _) => Packet::End,
        (length, _) => Packet::Record(Record { length, descriptor: descriptors.pop(), ..record }),
    })
}
