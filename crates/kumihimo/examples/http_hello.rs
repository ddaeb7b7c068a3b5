//! HTTP/1.1, one microprocess per connection: keep-alive, pipelining, limits, timeouts, in plain blocking code.
//!
//! `cargo run --release --example http_hello [ADDRESS]`, then `curl -i http://127.0.0.1:8080/`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use kumihimo::net::{Shutdown, TcpListener, TcpStream};
use kumihimo::thread;

/// Longest request line plus headers, in bytes.
const HEAD_MAX: u64 = 8 << 10;
/// Longest body that is read and thrown away, in bytes.
const BODY_MAX: u64 = 1 << 20;
/// How long a client may keep us waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// What matters of a request.
struct Request {
    method: String,
    path: String,
    body: u64,
    close: bool,
}

/// Why there is none: the connection ended between two requests, or this is what the client is told.
enum Refusal {
    End,
    Status(&'static str),
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Refusal {
        match e.kind() {
            io::ErrorKind::InvalidData => Refusal::Status("400 Bad Request"),
            _ => Refusal::End,
        }
    }
}

fn read_request(from: &mut impl BufRead) -> Result<Request, Refusal> {
    const BAD: Refusal = Refusal::Status("400 Bad Request");
    let mut head = from.take(HEAD_MAX);
    let mut line = String::new();
    let mut next = |line: &mut String| {
        line.clear();
        head.read_line(line)?;
        match (line.ends_with('\n'), head.limit()) {
            (true, _) => Ok(()),
            (false, 0) => Err(Refusal::Status("431 Request Header Fields Too Large")),
            (false, _) => Err(Refusal::End),
        }
    };
    next(&mut line)?;
    if line.trim_end().is_empty() {
        // RFC 9112, 2.2: one empty line before a request is forgiven.
        next(&mut line)?;
    }
    let mut words = line.split_ascii_whitespace();
    let (Some(method), Some(path), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BAD);
    };
    let mut close = match version {
        "HTTP/1.1" => false,
        "HTTP/1.0" => true,
        _ => return Err(Refusal::Status("505 HTTP Version Not Supported")),
    };
    // RFC 9112, 3.2: a request of version 1.1 names its host.
    let (mut host, mut body) = (close, None);
    let (method, path) = (method.to_owned(), path.to_owned());
    loop {
        next(&mut line)?;
        if line.trim_end().is_empty() {
            return if host { Ok(Request { method, path, body: body.unwrap_or(0), close }) } else { Err(BAD) };
        }
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            // Digits only: `parse` would take a sign. A second, different length is how requests are smuggled.
            let length = value.bytes().all(|b| b.is_ascii_digit()).then(|| value.parse().ok()).flatten().ok_or(BAD)?;
            if body.is_some_and(|b| b != length) {
                return Err(BAD);
            }
            body = Some(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Refusal::Status("501 Not Implemented"));
        } else if name.eq_ignore_ascii_case("host") {
            host = true;
        } else if name.eq_ignore_ascii_case("connection") {
            close |= value.split(',').any(|v| v.trim().eq_ignore_ascii_case("close"));
        }
    }
}

fn respond(to: &mut impl Write, status: &str, body: &str, head_only: bool, close: bool) -> io::Result<()> {
    let connection = if close { "close" } else { "keep-alive" };
    let shown = if head_only { "" } else { body };
    // One write: one packet.
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n{shown}",
        body.len()
    );
    to.write_all(response.as_bytes())
}

/// Says why not, and lets the client read that: closing with its data unread would send a reset after it.
fn refuse(mut from: impl Read, mut to: &TcpStream, status: &str) -> io::Result<()> {
    respond(&mut to, status, "", false, true)?;
    to.shutdown(Shutdown::Write)?;
    io::copy(&mut (&mut from).take(BODY_MAX), &mut io::sink()).map(drop)
}

fn converse(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut from, mut to) = (BufReader::new(stream), stream);
    loop {
        let request = match read_request(&mut from) {
            Ok(request) if request.body > BODY_MAX => {
                return refuse(from, to, "413 Content Too Large");
            }
            Ok(request) => request,
            Err(Refusal::End) => return Ok(()),
            Err(Refusal::Status(status)) => return refuse(from, to, status),
        };
        // Nothing here wants a body, but the next request begins behind it.
        io::copy(&mut (&mut from).take(request.body), &mut io::sink())?;
        let (status, body) = match (&*request.method, &*request.path) {
            ("GET" | "HEAD", "/") => ("200 OK", "Hello from a microprocess!\n"),
            ("GET" | "HEAD", _) => ("404 Not Found", "Nothing here.\n"),
            _ => ("405 Method Not Allowed", "GET or HEAD, please.\n"),
        };
        respond(&mut to, status, body, request.method == "HEAD", request.close)?;
        if request.close {
            return Ok(());
        }
    }
}

/// Accepts until the listener fails for good.
pub fn serve(listener: &TcpListener) -> io::Result<()> {
    for stream in listener.incoming() {
        let stream = stream?;
        // What goes wrong with one client is that client's affair.
        thread::Builder::new().spawn(move || drop(converse(&stream)))?;
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests include this file for `serve`")]
fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(addr)?;
    println!("http://{}/", listener.local_addr()?);
    thread::spawn(move || serve(&listener)).join().expect("the acceptor panicked")
}
