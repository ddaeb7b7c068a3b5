//! The others of `kv`: connections that send GET and SET in turn, the next after the reply.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;
use rustix::event::{PollFd, PollFlags, poll};

/// Number of connections, each with one outstanding request.
const CONNECTIONS: usize = 16;
/// Number of keys, spread over the shards of the server. An odd number, so that each key is read
/// and set in turn.
pub const KEYS: usize = 999;
const VALUE: usize = 64;

/// Name of key `n`.
pub fn key(n: usize) -> String {
    format!("other:{n:04}")
}

/// The value of each key.
pub fn value() -> String {
    "v".repeat(VALUE)
}

struct Connection {
    stream: TcpStream,
    asked: Instant,
    reply: Vec<u8>,
}

/// All connections of the others.
pub struct Load {
    connections: Vec<Connection>,
    next: usize,
    sets: bool,
}

impl Load {
    pub fn connect(to: SocketAddr) -> io::Result<Load> {
        let connect = |_| {
            let stream = TcpStream::connect(to)?;
            stream.set_nodelay(true)?;
            Ok(Connection { stream, asked: Instant::now(), reply: Vec::new() })
        };
        let connections = (0..CONNECTIONS).map(connect).collect::<io::Result<_>>()?;
        Ok(Load { connections, next: 0, sets: false })
    }

    fn ask(&mut self, at: usize) -> io::Result<()> {
        // A step that is coprime to the number of keys, so that all keys are used.
        self.next = (self.next + 7) % KEYS;
        self.sets = !self.sets;
        let key = key(self.next);
        let connection = &mut self.connections[at];
        connection.asked = Instant::now();
        connection.reply.clear();
        let value = value();
        let request = if self.sets {
            format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE}\r\n{value}\r\n", key.len())
        } else {
            format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())
        };
        connection.stream.write_all(request.as_bytes())
    }

    /// Sends requests for `length`, and returns the delays of all replies.
    pub fn run(&mut self, length: Duration) -> io::Result<Lateness> {
        let mut late = Lateness::default();
        let begun = Instant::now();
        let mut waits = [true; CONNECTIONS];
        for at in 0..CONNECTIONS {
            self.ask(at)?;
        }
        while waits.contains(&true) {
            let waiting: Vec<usize> = (0..CONNECTIONS).filter(|&at| waits[at]).collect();
            let mut fds: Vec<_> = waiting
                .iter()
                .map(|&at| PollFd::new(&self.connections[at].stream, PollFlags::IN))
                .collect();
            poll(&mut fds, None)?;
            let ready: Vec<usize> = waiting
                .iter()
                .zip(&fds)
                .filter(|(_, fd)| !fd.revents().is_empty())
                .map(|(&at, _)| at)
                .collect();
            for at in ready {
                let connection = &mut self.connections[at];
                let mut part = [0; 256];
                match connection.stream.read(&mut part)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => connection.reply.extend_from_slice(&part[..n]),
                }
                if !is_whole(&connection.reply)? {
                    continue;
                }
                late.record(connection.asked.elapsed());
                if begun.elapsed() < length {
                    self.ask(at)?;
                } else {
                    waits[at] = false;
                }
            }
        }
        Ok(late)
    }
}

/// Whether a reply is complete. A key may have been removed by the attacker.
fn is_whole(reply: &[u8]) -> io::Result<bool> {
    let value = format!("${VALUE}\r\n{}\r\n", value());
    let whole = [b"+OK\r\n", b"$-1\r\n", value.as_bytes()];
    if !whole.iter().any(|one| one.starts_with(reply)) {
        return Err(io::Error::other(format!("a reply: {}", String::from_utf8_lossy(reply))));
    }
    Ok(whole.contains(&reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_whole_or_expected() {
        let value = format!("${VALUE}\r\n{}\r\n", value());
        for whole in ["+OK\r\n", "$-1\r\n", &value] {
            assert!(is_whole(whole.as_bytes()).unwrap(), "{whole:?}");
            for length in 0..whole.len() {
                assert!(!is_whole(&whole.as_bytes()[..length]).unwrap(), "{length} of {whole:?}");
            }
        }
        for other in ["-ERR\r\n", ":1\r\n", "$5\r\n", "+OK\r\n+"] {
            assert!(is_whole(other.as_bytes()).is_err(), "{other:?}");
        }
    }
}
