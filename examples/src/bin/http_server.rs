//! HTTP/1.1 with one microprocess for each connection, in blocking code with the crate `httparse`:
//! keep-alive, pipelining, limits, timeouts.
//!
//! `cargo run --release -p kumihimo-examples --bin http_server [ADDRESS]`, then
//! `curl -i http://127.0.0.1:8080/`.

use kumihimo::net::{Shutdown, TcpListener, TcpStream};
use kumihimo::thread;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

const HEAD_MAX: u64 = 8 << 10; // request line and headers, bytes
const BODY_MAX: u64 = 1 << 20; // bytes, discarded
const PATIENCE: Duration = Duration::from_secs(10);
const BAD: &str = "400 Bad Request";
/// Status, text, whether the text is omitted (HEAD), whether the connection ends, and the length of
/// the request's body.
type Answer = (&'static str, &'static str, bool, bool, u64);

/// The reply to a request with this head; `Err`: the status of a refusal.
fn answer(head: &[u8]) -> Result<Answer, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::Version) => return Err("505 HTTP Version Not Supported"),
        _ => return Err(BAD),
    }
    let fields = |name: &'static str| {
        request.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name))
    };
    // Digits only: `parse` would accept a sign. Requests with two different lengths are refused,
    // because they allow request smuggling.
    let number = |h: &httparse::Header| {
        std::str::from_utf8(h.value).ok().filter(|v| !v.starts_with('+'))?.parse::<u64>().ok()
    };
    let mut lengths = fields("content-length").map(number);
    let body = lengths
        .next()
        .unwrap_or(Some(0))
        .filter(|n| lengths.all(|other| other == Some(*n)))
        .ok_or(BAD)?;
    let mut wishes = fields("connection").flat_map(|h| h.value.split(|b| *b == b','));
    let close =
        request.version == Some(0) || wishes.any(|v| v.trim_ascii().eq_ignore_ascii_case(b"close"));
    let (status, text) = match (request.method, request.path) {
        // RFC 9112, 3.2
        _ if request.version == Some(1) && fields("host").next().is_none() => return Err(BAD),
        _ if fields("transfer-encoding").next().is_some() => return Err("501 Not Implemented"),
        _ if body > BODY_MAX => return Err("413 Content Too Large"),
        (Some("GET" | "HEAD"), Some("/")) => ("200 OK", "Hello from a microprocess!\n"),
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "Nothing here.\n"),
        _ => ("405 Method Not Allowed", "GET or HEAD, please.\n"),
    };
    Ok((status, text, request.method == Some("HEAD"), close, body))
}

fn converse(mut to: &TcpStream) -> io::Result<()> {
    to.set_nodelay(true)?;
    to.set_read_timeout(Some(PATIENCE))?;
    to.set_write_timeout(Some(PATIENCE))?;
    let mut from = BufReader::new(to);
    loop {
        let (mut head, mut rest) = (Vec::new(), (&mut from).take(HEAD_MAX));
        while !head.ends_with(b"\n\r\n") && !head.ends_with(b"\n\n") && rest.limit() > 0 {
            if rest.read_until(b'\n', &mut head)? == 0 {
                return Ok(()); // the client closed the connection
            }
        }
        let answer = if rest.limit() > 0 {
            answer(&head)
        } else {
            Err("431 Request Header Fields Too Large")
        };
        let (status, text, silent, close, body) =
            answer.unwrap_or_else(|status| (status, "", false, true, 0));
        // The body is unused, but the next request follows it.
        io::copy(&mut (&mut from).take(body), &mut io::sink())?;
        let (end, length) = (if close { "close" } else { "keep-alive" }, text.len());
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n"
        );
        to.write_all(
            (head + "Connection: " + end + "\r\n\r\n" + if silent { "" } else { text }).as_bytes(),
        )?;
        if close {
            // Half-close first, so that the client can read the reply: closing a socket with unread
            // data sends a reset.
            to.shutdown(Shutdown::Write)?;
            return io::copy(&mut from.take(BODY_MAX), &mut io::sink()).map(drop);
        }
    }
}

fn main() -> io::Result<()> {
    let listener =
        TcpListener::bind(std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:8080"))?;
    println!("http://{}/", listener.local_addr()?);
    loop {
        let (stream, _peer) = listener.accept()?;
        // Errors of one client do not affect the server.
        thread::Builder::new().spawn(move || drop(converse(&stream)))?;
    }
}
