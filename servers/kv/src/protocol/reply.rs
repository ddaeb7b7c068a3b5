//! What a client is told, in the version of the protocol that it speaks. The codec writes what it
//! can write as it comes, and the tests have it read all. Written here: headers of arrays, maps and
//! pushes, because the codec wants all members of one in memory at once, and strings, which are
//! most of what is ever sent, because it takes 74 ns for one of three bytes, and this 12.

use std::borrow::Cow;

use bytes::BytesMut;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame as Frame;

/// First words of errors that are codes.
const CODES: [&str; 5] = ["MISCONF", "NOPROTO", "OOM", "WRONGPASS", "WRONGTYPE"];

/// The versions of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, with which every connection begins.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

/// Replies that are gathered until they are sent.
#[derive(Default)]
pub struct Reply {
    /// What is to be sent.
    pub bytes: BytesMut,
    /// What the client understands.
    pub version: Version,
}

impl Reply {
    fn put(&mut self, frame: Frame<'_>) {
        extend_encode_borrowed(&mut self.bytes, &frame, false).expect("the buffer grows as needed");
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A word without line ends.
    pub fn simple(&mut self, text: &str) {
        self.put(Frame::SimpleString(text.as_bytes()));
    }

    /// Any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bytes.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Text; in RESP3 marked as such.
    pub fn verbatim(&mut self, text: &str) {
        if self.version == Version::Two {
            return self.bulk(text.as_bytes());
        }
        self.header(b'=', text.len() + 4);
        for part in ["txt:", text, "\r\n"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        self.put(Frame::Integer(number));
    }

    /// How many there are.
    pub fn count(&mut self, number: usize) {
        self.integer(number as i64);
    }

    /// No value.
    pub fn null(&mut self) {
        match self.version {
            Version::Two => self.bytes.extend_from_slice(b"$-1\r\n"),
            Version::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// No array.
    pub fn null_array(&mut self) {
        match self.version {
            Version::Two => self.bytes.extend_from_slice(b"*-1\r\n"),
            Version::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// A value, or none.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// An error. One without a code of its own is an `ERR`.
    pub fn error(&mut self, error: &str) {
        let code = error.split(' ').next().unwrap_or_default();
        let text = if CODES.contains(&code) {
            Cow::Borrowed(error)
        } else {
            Cow::Owned(format!("ERR {error}"))
        };
        // The client's own bytes may be in it.
        let clean = text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ");
        self.put(Frame::Error(&clean));
    }

    /// `length` values follow.
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// `length` pairs follow: twice as many values.
    pub fn map(&mut self, length: usize) {
        match self.version {
            Version::Two => self.header(b'*', length * 2),
            Version::Three => self.header(b'%', length),
        }
    }

    /// `length` different values follow.
    pub fn set(&mut self, length: usize) {
        self.header(if self.version == Version::Two { b'*' } else { b'~' }, length);
    }

    /// `length` values follow that the client did not ask for just now.
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
