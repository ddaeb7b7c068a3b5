//! Encodes replies in the client's protocol version. A codec encodes everything except headers and
//! strings, and the tests decode all replies with it. Headers of arrays, maps and pushes are
//! written here, because the codec requires all members of an aggregate in memory at once. Strings
//! are written here, because they are the most frequent reply, and the codec takes 74 ns for three
//! bytes, this code 12 ns.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::budget::{SMALL_REPLY, Share};
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame as Frame;

/// First words of errors that are error codes.
const CODES: [&str; 6] = ["MISCONF", "NOAUTH", "NOPROTO", "OOM", "WRONGPASS", "WRONGTYPE"];

/// Version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, the version of every new connection.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

/// Replies that have not been sent yet.
pub struct Reply {
    /// Encoded replies.
    pub bytes: BytesMut,
    /// The client's protocol version.
    pub version: Version,
    /// True if a part of the reply to the current command did not fit and was left out.
    pub refused: bool,
    share: Share,
    /// Length up to which the replies fit.
    room: usize,
}

impl Default for Reply {
    fn default() -> Reply {
        let (bytes, version) = Default::default();
        Reply { bytes, version, refused: false, share: Share::default(), room: usize::MAX }
    }
}

impl Reply {
    /// Replies of the server itself, which are not limited.
    pub fn new(version: Version) -> Reply {
        Reply { version, ..Reply::default() }
    }

    /// Makes room for a reply whose memory is counted already, in `share`.
    pub fn adopt(&mut self, share: Share) {
        self.room = self.room.saturating_add(share.bytes());
        self.share.absorb(share);
    }

    /// Replies that are limited by the memory of a connection.
    pub fn limited(share: Share) -> Reply {
        Reply { share, room: SMALL_REPLY, ..Reply::default() }
    }

    /// Returns whether `more` bytes fit. If not, the reply to the current command is refused.
    #[inline]
    pub fn fits(&mut self, more: usize) -> bool {
        self.bytes.len().saturating_add(more) <= self.room || self.grow(more)
    }

    #[cold]
    fn grow(&mut self, more: usize) -> bool {
        let need = self.bytes.len().saturating_add(more);
        // Doubling keeps the number of steps low. The exact size is the last resort.
        let sizes = [need.max(self.room.saturating_mul(2)), need];
        for size in sizes {
            if !self.refused && self.share.resize(size) {
                self.room = size;
                return true;
            }
        }
        self.refused = true;
        false
    }

    /// Returns the counted memory after the replies have been sent.
    pub fn release(&mut self) {
        if self.room > SMALL_REPLY && self.room != usize::MAX {
            self.share.resize(0);
            self.room = SMALL_REPLY;
        }
    }

    /// Writes the header of an array of `length` values in front of the values from `start` on.
    pub fn array_at(&mut self, start: usize, length: usize) {
        let end = self.bytes.len();
        self.array(length);
        let header = self.bytes.len() - end;
        self.bytes[start..].rotate_right(header);
    }

    fn put(&mut self, frame: Frame<'_>) {
        extend_encode_borrowed(&mut self.bytes, &frame, false).expect("the buffer grows as needed");
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. `text` contains no line breaks.
    pub fn simple(&mut self, text: &str) {
        self.put(Frame::SimpleString(text.as_bytes()));
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.fits(bytes.len() + 32) {
            return;
        }
        self.bytes.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// What stands before and behind a bulk string of `length` bytes. Returns the place of the
    /// bytes, which are put there later. Their memory has been counted.
    pub fn bulk_around(&mut self, length: usize) -> usize {
        self.header(b'$', length);
        let place = self.bytes.len();
        self.bytes.extend_from_slice(b"\r\n");
        place
    }

    /// Text. In RESP3, a verbatim string.
    pub fn verbatim(&mut self, text: &str) {
        if self.version == Version::Two {
            return self.bulk(text.as_bytes());
        }
        if !self.fits(text.len() + 32) {
            return;
        }
        self.header(b'=', text.len() + 4);
        for part in ["txt:", text, "\r\n"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.put(Frame::Integer(number));
    }

    /// A count, as an integer.
    pub fn count(&mut self, number: usize) {
        self.integer(number as i64);
    }

    /// The null value.
    pub fn null(&mut self) {
        match self.version {
            Version::Two => self.bytes.extend_from_slice(b"$-1\r\n"),
            Version::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// The null array.
    pub fn null_array(&mut self) {
        match self.version {
            Version::Two => self.bytes.extend_from_slice(b"*-1\r\n"),
            Version::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// A bulk string, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// An error. An error without one of the known codes gets the code `ERR`.
    pub fn error(&mut self, error: &str) {
        let code = error.split(' ').next().unwrap_or_default();
        let text = if CODES.contains(&code) {
            Cow::Borrowed(error)
        } else {
            Cow::Owned(format!("ERR {error}"))
        };
        // The text may contain bytes from the client: line breaks in it would split the reply.
        let clean = text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ");
        self.put(Frame::Error(&clean));
    }

    /// Header of an array of `length` values.
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// Header of a map of `length` pairs. Twice as many values follow.
    pub fn map(&mut self, length: usize) {
        match self.version {
            Version::Two => self.header(b'*', length * 2),
            Version::Three => self.header(b'%', length),
        }
    }

    /// Header of a set of `length` values.
    pub fn set(&mut self, length: usize) {
        self.header(if self.version == Version::Two { b'*' } else { b'~' }, length);
    }

    /// Header of a push of `length` values, which is no reply to a command.
    pub fn push(&mut self, length: usize) {
        self.header(if self.version == Version::Two { b'*' } else { b'>' }, length);
    }

    fn header(&mut self, kind: u8, length: usize) {
        if length < 10 {
            return self.bytes.extend_from_slice(&[kind, b'0' + length as u8, b'\r', b'\n']);
        }
        self.bytes.extend_from_slice(&[kind]);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
