//! Requests of each protocol, and checks of the replies.

use std::io;
use std::net::TcpStream;

use super::mysql::{self, wrong};

/// Size of a request of `echo`.
const ECHO: usize = 32;

/// Protocols of the measured servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// The request's bytes are the reply.
    Echo,
    /// GET of the root over a persistent connection.
    Http,
    /// A select of one row by its primary key, in MariaDB's text protocol.
    Mysql,
    /// A set and a get of one key in turn.
    Memcached,
    /// SET and GET of one key in turn.
    Redis,
}

impl Protocol {
    /// The argument of the load generator.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Http => "http",
            Protocol::Mysql => "mysql",
            Protocol::Memcached => "memcached",
            Protocol::Redis => "redis",
        }
    }

    /// What precedes the first request of a connection.
    pub fn greet(self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Protocol::Mysql => mysql::log_in(stream),
            _ => Ok(()),
        }
    }

    /// Number of requests after which a connection's requests repeat.
    pub fn requests_in_turn(self) -> u64 {
        match self {
            Protocol::Memcached | Protocol::Redis => 2,
            _ => 1,
        }
    }

    /// The request `number`, from 1, of connection `slot`.
    pub fn request(self, slot: u64, number: u64) -> Vec<u8> {
        // A value is set with an odd number and read with the next one.
        let value = value(number.div_ceil(2));
        match self {
            Protocol::Echo => echo(number).to_vec(),
            Protocol::Http => {
                b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n".to_vec()
            }
            Protocol::Mysql => {
                let row = row(slot, number);
                mysql::query(&format!("SELECT c FROM bench.rows WHERE id={row}"))
            }
            Protocol::Memcached if number % 2 == 1 => {
                format!("set k{slot} 0 0 {}\r\n{value}\r\n", value.len()).into_bytes()
            }
            Protocol::Memcached => format!("get k{slot}\r\n").into_bytes(),
            Protocol::Redis if number % 2 == 1 => format!("SET k{slot} {value}\r\n").into_bytes(),
            Protocol::Redis => format!("GET k{slot}\r\n").into_bytes(),
        }
    }

    /// Returns whether `reply` is the whole reply to a request.
    ///
    /// # Errors
    /// If it is another reply than expected.
    pub fn is_complete(self, slot: u64, number: u64, reply: &[u8]) -> io::Result<bool> {
        let value = value(number.div_ceil(2));
        let stored = number % 2 == 1;
        match self {
            Protocol::Echo => equal(reply, &echo(number)),
            Protocol::Http => http(reply),
            Protocol::Mysql => mysql::is_complete(reply, &text(row(slot, number))),
            Protocol::Memcached if stored => equal(reply, b"STORED\r\n"),
            Protocol::Memcached => {
                let text = format!("VALUE k{slot} 0 {}\r\n{value}\r\nEND\r\n", value.len());
                equal(reply, text.as_bytes())
            }
            Protocol::Redis if stored => equal(reply, b"+OK\r\n"),
            Protocol::Redis => equal(reply, format!("${}\r\n{value}\r\n", value.len()).as_bytes()),
        }
    }
}

/// The file that Apache serves, and the text of `lab/programs/http_server.py`.
pub const BODY: &str = "hello\n";

/// Number of rows of MariaDB's table.
pub const ROWS: u64 = 10_000;

/// The column's text in a row.
pub fn text(row: u64) -> String {
    format!("{}{row:08}", "x".repeat(100))
}

/// A row of the table, spread over all of them.
fn row(slot: u64, number: u64) -> u64 {
    (slot.wrapping_mul(7_919).wrapping_add(number.wrapping_mul(104_729))) % ROWS + 1
}

fn echo(number: u64) -> [u8; ECHO] {
    let mut bytes = [b'x'; ECHO];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn value(number: u64) -> String {
    format!("{number:0>100}")
}

/// Returns whether `reply` is all of `expected`.
fn equal(reply: &[u8], expected: &[u8]) -> io::Result<bool> {
    if !expected.starts_with(reply) {
        return Err(wrong(&String::from_utf8_lossy(&reply[..reply.len().min(80)])));
    }
    Ok(reply.len() == expected.len())
}

/// Returns whether a reply of HTTP is a header and [`BODY`].
fn http(reply: &[u8]) -> io::Result<bool> {
    let text = String::from_utf8_lossy(reply);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(false) };
    if !head.starts_with("HTTP/1.1 200") {
        return Err(wrong(head.lines().next().unwrap_or_default()));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        None => Err(wrong("no content-length")),
        Some(length) if length != BODY.len() => {
            Err(wrong(&format!("a content-length of {length}")))
        }
        Some(_) => equal(body.as_bytes(), BODY.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_complete_at_their_last_byte() {
        let replies: [(Protocol, u64, Vec<u8>); 5] = [
            (Protocol::Echo, 3, echo(3).to_vec()),
            (Protocol::Http, 1, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n".to_vec()),
            (Protocol::Memcached, 1, b"STORED\r\n".to_vec()),
            (
                Protocol::Memcached,
                2,
                format!("VALUE k7 0 100\r\n{:0>100}\r\nEND\r\n", 1).into_bytes(),
            ),
            (Protocol::Redis, 4, format!("$100\r\n{:0>100}\r\n", 2).into_bytes()),
        ];
        for (protocol, number, reply) in replies {
            for length in 0..reply.len() {
                let part = protocol.is_complete(7, number, &reply[..length]);
                assert!(!part.unwrap(), "{protocol:?} {length}");
            }
            assert!(protocol.is_complete(7, number, &reply).unwrap(), "{protocol:?}");
        }
    }

    #[test]
    fn another_reply_is_an_error() {
        for (protocol, number, reply) in [
            (Protocol::Echo, 1, &b"y"[..]),
            (Protocol::Http, 1, b"HTTP/1.1 503 Busy\r\n\r\n"),
            (Protocol::Http, 1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            (Protocol::Http, 1, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nother\n"),
            (Protocol::Memcached, 1, b"ERROR\r\n"),
            (Protocol::Memcached, 2, b"END\r\n"),
            (Protocol::Redis, 2, b"$-1\r\n"),
        ] {
            assert!(protocol.is_complete(0, number, reply).is_err(), "{protocol:?} {reply:?}");
        }
    }

    #[test]
    fn rows_exist_in_the_table() {
        for slot in 0..100 {
            for number in 0..100 {
                assert!((1..=ROWS).contains(&row(slot, number)));
            }
        }
    }
}
