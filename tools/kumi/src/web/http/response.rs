//! Responses, with the header fields that protect a page.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use super::transport::Transport;

/// Time for a response to be taken by the client.
const TAKEN: Duration = Duration::from_secs(10);

/// Header fields of every response. Scripts, styles and data come from this server alone and never
/// from the page's own text, so that a name that became part of the page could execute nothing; no
/// other page may show this one in a frame; nothing is kept by caches or sent to other servers.
/// With the policy `no-referrer`, browsers would hide the origin of a form from this server, too.
const PROTECTION: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; \
    style-src 'self'; connect-src 'self'; img-src 'self' blob:; worker-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
    Referrer-Policy: same-origin\r\nCache-Control: no-store\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n";

/// Types of bodies.
pub mod kind {
    /// Text for people.
    pub const TEXT: &str = "text/plain; charset=utf-8";
    /// A page.
    pub const HTML: &str = "text/html; charset=utf-8";
    /// An answer to a script.
    pub const JSON: &str = "application/json";
    /// A style sheet.
    pub const CSS: &str = "text/css; charset=utf-8";
    /// A script.
    pub const JS: &str = "text/javascript; charset=utf-8";
    /// A picture.
    pub const SVG: &str = "image/svg+xml";
}

/// A response with a body.
#[derive(Debug)]
pub struct Response {
    status: u16,
    kind: &'static str,
    body: Cow<'static, [u8]>,
    /// Further header fields, each with its end.
    fields: String,
}

impl Response {
    /// A response with status 200.
    pub fn new(kind: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Response {
        Response { status: 200, kind, body: body.into(), fields: String::new() }
    }

    /// A response of one line of text.
    pub fn text(status: u16, line: &str) -> Response {
        let body = format!("{line}\n").into_bytes();
        Response { status, ..Response::new(kind::TEXT, body) }
    }

    /// An answer to a script.
    pub fn json(status: u16, value: &impl serde::Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response { status, ..Response::new(kind::JSON, body) },
            Err(e) => Response::text(500, &e.to_string()),
        }
    }

    /// The request to continue at a path of this server.
    pub fn see(path: &str) -> Response {
        Response::text(303, "continue there").with("Location", path)
    }

    /// Sets the status.
    pub fn status(self, status: u16) -> Response {
        Response { status, ..self }
    }

    /// Adds a header field. `value` is the server's own text, without control characters.
    pub fn with(mut self, name: &str, value: &str) -> Response {
        debug_assert!(!value.contains(char::is_control), "{value:?}");
        write!(self.fields, "{name}: {value}\r\n").expect("a String takes all");
        self
    }

    /// Writes the response.
    ///
    /// # Errors
    /// As writing to the transport; `TimedOut` if the client does not take it.
    pub fn write(&self, to: &mut Transport, ends: bool) -> io::Result<()> {
        to.within(TAKEN);
        let mut all = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n{}{PROTECTION}\r\n",
            reason(self.status),
            self.kind,
            self.body.len(),
            if ends { "close" } else { "keep-alive" },
            self.fields,
        )
        .into_bytes();
        all.extend_from_slice(&self.body);
        to.write_all(&all)?;
        to.flush()
    }
}

/// Begins a stream of events, which lasts until the connection ends.
///
/// # Errors
/// As writing to the transport.
pub fn begin_events(to: &mut Transport) -> io::Result<()> {
    send(
        to,
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n{PROTECTION}\r\nretry: 2000\n\n"
        )
        .as_bytes(),
    )
}

/// Appends an event. `data` is one line, as JSON is.
pub fn put_event(to: &mut Vec<u8>, name: &str, data: &str) {
    debug_assert!(!data.contains(['\n', '\r']));
    to.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}

/// Writes a part of a stream of events.
///
/// # Errors
/// As writing to the transport; `TimedOut` if the client does not take it.
pub fn send(to: &mut Transport, bytes: &[u8]) -> io::Result<()> {
    to.within(TAKEN);
    to.write_all(bytes)?;
    to.flush()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "200 OK",
        303 => "303 See Other",
        400 => "400 Bad Request",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        408 => "408 Request Timeout",
        409 => "409 Conflict",
        413 => "413 Content Too Large",
        415 => "415 Unsupported Media Type",
        421 => "421 Misdirected Request",
        429 => "429 Too Many Requests",
        431 => "431 Request Header Fields Too Large",
        501 => "501 Not Implemented",
        503 => "503 Service Unavailable",
        505 => "505 HTTP Version Not Supported",
        _ => "500 Internal Server Error",
    }
}

/// The response to connections beyond the limit, which the accept loop writes itself.
pub const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
    Retry-After: 5\r\nContent-Length: 30\r\nConnection: close\r\n\r\ntoo many connections are open\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_response_has_its_length() {
        let (head, body) = BUSY.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }

    #[test]
    fn events_are_lines() {
        let mut bytes = Vec::new();
        put_event(&mut bytes, "view-1", r#"{"name":"a\nb"}"#);
        assert_eq!(bytes, b"event: view-1\ndata: {\"name\":\"a\\nb\"}\n\n");
    }
}
