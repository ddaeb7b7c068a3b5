//! HTTP/1.1 by `httparse`: the reply to a request is its path.
//!
//! [`Requests`] does no I/O, so that blocking and asynchronous servers share it.

use std::io::{self, Read, Write};

/// Most bytes of a request with its headers.
const LONGEST: usize = 1024;
/// Most headers of a request.
const HEADERS: usize = 16;

/// The reply to a request for `path`.
#[must_use]
pub fn reply(path: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len()).into_bytes()
}

/// The unanswered part of what a connection has received.
#[derive(Debug)]
pub struct Requests {
    buffer: [u8; LONGEST],
    filled: usize,
}

impl Default for Requests {
    fn default() -> Self {
        Requests { buffer: [0; LONGEST], filled: 0 }
    }
}

impl Requests {
    /// Where the next bytes belong. Never empty after [`replies`](Requests::replies).
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Returns the replies to all requests that are complete with the next `n` bytes, and their
    /// number.
    ///
    /// # Errors
    /// `InvalidData` if a request is none, or longer than 1,024 bytes.
    pub fn replies(&mut self, n: usize) -> io::Result<(Vec<u8>, usize)> {
        self.filled += n;
        let (mut replies, mut count, mut begin) = (Vec::new(), 0, 0);
        while begin < self.filled {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS];
            let mut request = httparse::Request::new(&mut headers);
            let unanswered = &self.buffer[begin..self.filled];
            match request.parse(unanswered).map_err(invalid)? {
                httparse::Status::Partial if unanswered.len() == LONGEST => {
                    return Err(invalid("the request is longer than 1,024 bytes"));
                }
                httparse::Status::Partial => break,
                httparse::Status::Complete(length) => {
                    let reply = reply(request.path.expect("a complete request has a path"));
                    // One allocation for the usual single request.
                    if replies.is_empty() {
                        replies = reply;
                    } else {
                        replies.extend_from_slice(&reply);
                    }
                    begin += length;
                    count += 1;
                }
            }
        }
        self.buffer.copy_within(begin..self.filled, 0);
        self.filled -= begin;
        Ok((replies, count))
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Replies to all requests of one connection, and returns their number.
///
/// # Errors
/// That of the connection, and `InvalidData` for a request that is none.
pub fn answer(mut stream: impl Read + Write) -> io::Result<usize> {
    let (mut requests, mut served) = (Requests::default(), 0);
    loop {
        let n = stream.read(requests.room())?;
        if n == 0 {
            return Ok(served);
        }
        let (replies, count) = requests.replies(n)?;
        if count > 0 {
            stream.write_all(&replies)?;
            served += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that delivers these parts.
    struct Parts<'a>(std::vec::IntoIter<&'a [u8]>, Vec<u8>);

    impl Read for Parts<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let part = self.0.next().unwrap_or_default();
            to[..part.len()].copy_from_slice(part);
            Ok(part.len())
        }
    }

    impl Write for Parts<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn served(parts: Vec<&[u8]>) -> io::Result<(usize, Vec<u8>)> {
        let mut stream = Parts(parts.into_iter(), Vec::new());
        let served = answer(&mut stream)?;
        Ok((served, stream.1))
    }

    #[test]
    fn requests_are_answered_in_parts_and_together() {
        let of = |paths: &[&str]| paths.iter().flat_map(|path| reply(path)).collect::<Vec<u8>>();
        let parts = served(vec![b"GET /a HT", b"TP/1.1\r\nhost: x\r\n\r\n"]);
        assert_eq!(parts.unwrap(), (1, of(&["/a"])));
        let together = served(vec![
            b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c",
            b" HTTP/1.1\r\n\r\n",
        ]);
        assert_eq!(together.unwrap(), (3, of(&["/a", "/b", "/c"])));
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        let long = [&b"GET /"[..], &[b'a'; LONGEST - 5]].concat();
        for bytes in [&b"\0\0"[..], &long] {
            let refused = served(vec![bytes]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }
}
