//! Entry points for the fuzzers: records of the handshake and of links, from bytes and sockets.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::error::Error;
use crate::handshake::record::{Hello, Welcome, refusal};
use crate::link::socket::{self, LinkRecord};
use crate::region::received_regions::ReceivedRegions;
use crate::wire::error_record::{decode_error, encode_error};
use crate::wire::message::Status;
use crate::wire::packet::{self, Packet};

/// Decodes a client's first record; returns it encoded again.
///
/// # Errors
/// `Version`, `Malformed`.
pub fn hello(record: &[u8]) -> Result<Vec<u8>, Error> {
    Hello::decode(record).map(|hello| hello.encode())
}

/// Decodes a server's first record; returns it encoded again.
///
/// # Errors
/// `Version`, `Malformed`; what the server refuses with.
pub fn welcome(record: &[u8]) -> Result<Vec<u8>, Error> {
    Welcome::decode(record).map(|welcome| welcome.encode())
}

/// Encodes a refusal.
#[must_use]
pub fn refuse(error: &Error) -> Vec<u8> {
    refusal(error)
}

/// Decodes an error; returns it, and itself encoded again.
#[must_use]
pub fn error(record: &[u8]) -> Option<(Error, Vec<u8>)> {
    let error = decode_error(record)?;
    let mut again = Vec::new();
    encode_error(&mut again, &error);
    Some((error, again))
}

/// Decodes the outcome in a reply; returns it encoded again.
#[must_use]
pub fn status(number: u32) -> Option<u32> {
    Status::of(number).map(Status::number)
}

/// What has come over a link's socket.
#[derive(Debug)]
pub enum Received {
    /// The end.
    End,
    /// The peer is cut for this.
    Wrong(String),
    /// No descriptor is free.
    NoRoom,
    /// A record that is no rule of the protocol; its bytes.
    Unknown(Vec<u8>),
    /// A record without memory.
    Record(Vec<u8>),
    /// Memory that was passed: the bytes that can be read there.
    Region(usize),
}

/// Receives and parses one record, as the link poller does.
///
/// # Errors
/// As recvmsg(2).
pub fn receive(socket: BorrowedFd<'_>) -> Result<Received, Errno> {
    let record = match packet::receive(socket, false)? {
        Packet::End => return Ok(Received::End),
        Packet::Wrong(what) => return Ok(Received::Wrong(what.to_owned())),
        Packet::NoRoom => return Ok(Received::NoRoom),
        Packet::Record(record) => record,
    };
    let bytes = record.bytes().to_vec();
    let Some(parsed) = socket::parse(&record) else { return Ok(Received::Unknown(bytes)) };
    let (LinkRecord::Region { id, length }, Some(fd)) = (parsed, record.descriptor) else {
        return Ok(Received::Record(bytes));
    };
    let regions = ReceivedRegions::default();
    if let Err(error) = regions.insert(id, fd, length) {
        return Ok(Received::Wrong(error.to_string()));
    }
    match regions.get(id, true, || {}) {
        // Each page is touched: one behind the end of the file would be fatal.
        Ok(region) => Ok(Received::Region(region.iter().fold(0, |n, _| n + 1))),
        Err(error) => Ok(Received::Wrong(error.to_string())),
    }
}
