//! Requests, read with limits on their size and time. Anything unusual is refused.

use std::borrow::Cow;
use std::io::{self, Read};
use std::time::Duration;

use super::transport::Transport;

/// Largest request line with header fields, in bytes.
pub const MOST_HEAD: usize = 16 << 10;
/// Largest body, in bytes.
pub const MOST_BODY: usize = 16 << 10;
/// Largest number of header fields.
const MOST_FIELDS: usize = 64;
/// Time for a connection's next request to begin, and for the handshake of TLS before the first.
const IDLE: Duration = Duration::from_secs(30);
/// Time for the rest of a request that has begun.
const WHOLE: Duration = Duration::from_secs(10);

/// A refusal of a request that cannot be read: status, and the reason as text. The connection ends,
/// because the beginning of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub u16, pub &'static str);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` or any other method.
    pub method: String,
    /// The path, not decoded.
    pub path: String,
    /// What follows the question mark.
    pub query: String,
    /// Names in lower case, and values.
    fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header field; `None` if it is absent or there are several.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut all = self.fields.iter().filter(|(is, _)| is == name);
        let first = all.next()?;
        all.next().is_none().then_some(&first.1)
    }

    /// The values of a parameter of the query.
    pub fn parameters<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        form_urlencoded::parse(self.query.as_bytes())
            .filter(move |(is, _)| is == name)
            .map(|(_, value)| value)
    }

    /// The value of a cookie; `None` if it is absent or there are several.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let pairs = self.field("cookie")?.split(';').filter_map(|pair| pair.trim().split_once('='));
        let mut all = pairs.filter(|(is, _)| *is == name).map(|(_, value)| value);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }

    /// Whether the client ends the connection after this request.
    pub fn ends(&self) -> bool {
        let mut wishes = self.fields.iter().filter(|(name, _)| name == "connection");
        wishes
            .any(|(_, value)| value.split(',').any(|one| one.trim().eq_ignore_ascii_case("close")))
    }
}

/// The requests of a connection.
#[derive(Default)]
pub struct Requests {
    /// What has arrived and was not used.
    buffer: Vec<u8>,
}

/// What reading a request ended with.
#[derive(Debug)]
pub enum Next {
    /// A request.
    Request(Box<Request>),
    /// The client sent something that is no request, or too much.
    Malformed(Malformed),
    /// The client has gone, or was too slow.
    Gone,
}

impl Requests {
    /// Reads the next request. `idle` runs the wait for its first byte.
    pub fn next(
        &mut self,
        from: &mut Transport,
        idle: impl FnOnce(&mut dyn FnMut() -> io::Result<usize>) -> io::Result<usize>,
    ) -> Next {
        from.within(IDLE);
        if self.buffer.is_empty() {
            let buffer = &mut self.buffer;
            match idle(&mut || more(from, buffer)) {
                Ok(1..) => {}
                _ => return Next::Gone,
            }
        }
        from.within(WHOLE);
        // Bytes in which no end of a head was found.
        let mut searched = 0;
        let (mut request, length) = loop {
            let found = is_complete(&self.buffer[searched..]);
            searched = self.buffer.len().saturating_sub(2);
            match head(&self.buffer, found) {
                Err(malformed) => return Next::Malformed(malformed),
                Ok(Some((request, used, length))) => {
                    self.buffer.drain(..used);
                    break (request, length);
                }
                Ok(None) => {}
            }
            match more(from, &mut self.buffer) {
                Ok(1..) => {}
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    return Next::Malformed(Malformed(408, "the request took too long"));
                }
                _ => return Next::Gone,
            }
        };
        while self.buffer.len() < length {
            match more(from, &mut self.buffer) {
                Ok(1..) => {}
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    return Next::Malformed(Malformed(408, "the request took too long"));
                }
                _ => return Next::Gone,
            }
        }
        request.body = self.buffer.drain(..length).collect();
        Next::Request(Box::new(request))
    }
}

/// Appends what arrives next; 0 at the end.
fn more(from: &mut Transport, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut some = [0; 4096];
    let n = from.read(&mut some)?;
    buffer.extend_from_slice(&some[..n]);
    Ok(n)
}

/// Whether the bytes may contain an empty line, which ends a head. If the parser ran at each
/// arriving byte, a client that sends single bytes would cost the square of the head's size.
fn is_complete(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|two| two == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

/// Parses a head: the request, the length of the head and that of the body. `None` if it is
/// incomplete, which `has_end` denies.
fn head(bytes: &[u8], has_end: bool) -> Result<Option<(Request, usize, usize)>, Malformed> {
    const BAD: Malformed = Malformed(400, "this is no request of HTTP/1.1");
    const LARGE: Malformed = Malformed(431, "the request line and header fields are too large");
    if !has_end {
        return if bytes.len() > MOST_HEAD { Err(LARGE) } else { Ok(None) };
    }
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let used = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(used)) if used <= MOST_HEAD => used,
        Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
            return Err(LARGE);
        }
        Err(httparse::Error::Version) => return Err(Malformed(505, "use HTTP/1.1")),
        Ok(httparse::Status::Partial) | Err(_) => return Err(BAD),
    };
    if parsed.version != Some(1) {
        return Err(Malformed(505, "use HTTP/1.1"));
    }
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else { return Err(BAD) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !path.starts_with('/') {
        return Err(Malformed(400, "the target of a request begins with /"));
    }
    let mut all = Vec::with_capacity(parsed.headers.len());
    for field in parsed.headers.iter() {
        let Ok(value) = std::str::from_utf8(field.value) else {
            return Err(Malformed(400, "a header field is no text"));
        };
        all.push((field.name.to_ascii_lowercase(), value.to_owned()));
    }
    let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
    let request = Request { method, path, query, fields: all, body: Vec::new() };
    let length = length(&request)?;
    Ok(Some((request, used, length)))
}

/// The length of the body. A length that two readers could understand differently is refused, as it
/// allows request smuggling.
fn length(request: &Request) -> Result<usize, Malformed> {
    if request.fields.iter().any(|(name, _)| name == "transfer-encoding") {
        return Err(Malformed(501, "send the body with content-length"));
    }
    let mut lengths = request.fields.iter().filter(|(name, _)| name == "content-length");
    let Some((_, length)) = lengths.next() else { return Ok(0) };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    if lengths.next().is_some() || !digits {
        return Err(Malformed(400, "content-length is no single number"));
    }
    // More digits than fit are too large, too.
    match length.parse() {
        Ok(length) if length <= MOST_BODY => Ok(length),
        _ => Err(Malformed(413, "the body is too large")),
    }
}

#[cfg(test)]
mod tests;
