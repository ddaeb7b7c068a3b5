//! Load generator of `run`: a closed loop over many connections, of which a number is active at a
//! time. One kernel thread with epoll, the same for every server.
//!
//! [`protocol`] has the requests and checks the replies, `mysql` the handshake of MariaDB's wire
//! protocol. `fresh` opens a connection for each request, beside queries that compute. No client
//! library is used, because those for MariaDB need a kernel thread for each active connection.

mod fresh;
mod mysql;
pub mod protocol;

use std::io::{BufRead, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::work::Dice;
use kumihimo_bench_kit::{Lateness, raise_descriptors};
pub use mysql::USER;
use protocol::Protocol;
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::{PATIENCE, await_replies};

#[derive(clap::Args)]
pub struct Args {
    /// Protocol of the server
    #[arg(value_enum)]
    protocol: Protocol,
    /// Port of the server on 127.0.0.1
    port: u16,
    /// Number of connections
    connections: usize,
    /// Number of connections with an outstanding request
    active: usize,
    /// Open a connection for each request instead, beside this number of queries that compute
    #[arg(long, value_name = "QUERIES")]
    fresh: Option<usize>,
}

/// Result of one slice.
#[derive(Debug)]
pub struct Slice {
    /// Latencies of all replies, including those after the end of the slice.
    pub late: Lateness,
    pub took: Duration,
    /// Number of replies within the slice.
    pub requests: u64,
    /// Number of connections that the server has closed, or never accepted, so far.
    pub dropped: usize,
}

/// Connects, sends one request over each connection and prints `ready`. Then each line of standard
/// input is a number of milliseconds for which to run the loop. The reply is `REQUESTS SECONDS P50
/// P99 ALL DROPPED` (microseconds; ALL includes replies after the end).
pub fn run(args: Args) -> Result<(), String> {
    raise_descriptors();
    let failed = |e: std::io::Error| format!("load: {e}");
    let mut load: Box<dyn FnMut(Duration) -> std::io::Result<Slice>> = match args.fresh {
        Some(queries) => Box::new(move |length| fresh::run(args.port, queries, length)),
        None => {
            let mut load = Load::connect(args.protocol, args.port, args.connections, args.active)
                .map_err(failed)?;
            Box::new(move |length| load.run(length))
        }
    };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let millis = line
            .trim()
            .parse()
            .map_err(|_| format!("load: {line:?} is not a number of milliseconds"))?;
        let slice = load(Duration::from_millis(millis)).map_err(failed)?;
        let [p50, p99] = [0.5, 0.99].map(|q| slice.late.us(q));
        println!(
            "{} {} {p50} {p99} {} {}",
            slice.requests,
            slice.took.as_secs_f64(),
            slice.late.len(),
            slice.dropped
        );
    }
    Ok(())
}

/// Returns whether a server completes a request on a new connection.
///
/// # Errors
/// Why it does not.
pub fn probe(protocol: Protocol, port: u16) -> std::io::Result<()> {
    Connection::open(protocol, port, 0).map(drop)
}

/// A connection with at most one outstanding request.
struct Connection {
    stream: TcpStream,
    /// Number of the outstanding or next request of this connection.
    number: u64,
    reply: Vec<u8>,
    sent_at: Instant,
    is_active: bool,
}

/// A closed loop. After each reply, the next request goes over a connection that is drawn at
/// random among those without one, so that all connections are used.
struct Load {
    protocol: Protocol,
    epoll: OwnedFd,
    /// `None` for connections that the server has closed.
    connections: Vec<Option<Connection>>,
    active: usize,
    missing: usize,
    dice: Dice,
}

impl Load {
    /// Opens connections until the server refuses one; the others count as dropped.
    fn connect(
        protocol: Protocol,
        port: u16,
        count: usize,
        active: usize,
    ) -> std::io::Result<Load> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(count);
        for i in 0..count {
            let connection = match Connection::open(protocol, port, i) {
                Ok(connection) => connection,
                Err(error) if i == 0 => return Err(error),
                Err(error) => {
                    eprintln!("load: connection {i} of {count}: {error}");
                    break;
                }
            };
            connection.stream.set_nonblocking(true)?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(i as u64);
            epoll::add(&epoll, &connection.stream, data, flags)?;
            connections.push(Some(connection));
        }
        let missing = count - connections.len();
        let active = active.min(connections.len());
        Ok(Load { protocol, epoll, connections, active, missing, dice: Dice::new(1) })
    }

    fn dropped(&self) -> usize {
        self.missing + self.connections.iter().filter(|one| one.is_none()).count()
    }

    /// Runs the loop, and then receives the outstanding replies.
    fn run(&mut self, length: Duration) -> std::io::Result<Slice> {
        let mut late = Lateness::default();
        let (mut under_way, mut requests) = (0, 0);
        let end = Instant::now() + length;
        for _ in 0..self.active {
            under_way += usize::from(self.send_next()?);
        }
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 256];
        while under_way > 0 {
            for event in await_replies(&self.epoll, &mut events, under_way)? {
                let slot = event.data.u64() as usize;
                let Some(connection) = &mut self.connections[slot] else { continue };
                let was_active = connection.is_active;
                match connection.receive(self.protocol, slot) {
                    Ok(false) => continue,
                    Ok(true) => {
                        let now = Instant::now();
                        late.record(now - connection.sent_at);
                        requests += u64::from(now < end);
                        // Edge-triggered: an end that arrives with the reply causes no other event.
                        let flags = event.flags;
                        if flags.contains(epoll::EventFlags::RDHUP) {
                            self.connections[slot] = None;
                        }
                    }
                    // A wrong reply is a failure of the server, a closed connection is counted.
                    Err(error) if error.kind() == ErrorKind::InvalidData => return Err(error),
                    Err(_) => self.connections[slot] = None,
                }
                if was_active {
                    under_way -= 1;
                    if Instant::now() < end {
                        under_way += usize::from(self.send_next()?);
                    }
                }
            }
        }
        Ok(Slice { late, took: length, requests, dropped: self.dropped() })
    }

    /// Sends a request over an idle connection. Returns `false` if none is left.
    fn send_next(&mut self) -> std::io::Result<bool> {
        let count = self.connections.len();
        let first = self.dice.below(count as u64) as usize;
        for slot in (first..count).chain(0..first) {
            let Some(connection) = self.connections[slot].as_mut().filter(|one| !one.is_active)
            else {
                continue;
            };
            match connection.send(self.protocol, slot) {
                Ok(()) => return Ok(true),
                Err(_) => self.connections[slot] = None,
            }
        }
        Ok(false)
    }
}

impl Connection {
    /// Connects, logs in, and completes one request.
    fn open(protocol: Protocol, port: u16, slot: usize) -> std::io::Result<Connection> {
        let mut stream = connect(port)?;
        protocol.greet(&mut stream)?;
        let (number, reply) = (0, Vec::new());
        let mut connection =
            Connection { stream, number, reply, sent_at: Instant::now(), is_active: false };
        // Requests of some protocols come in pairs.
        for _ in 0..protocol.requests_in_turn() {
            connection.send(protocol, slot)?;
            while !connection.receive(protocol, slot)? {}
        }
        Ok(connection)
    }

    fn send(&mut self, protocol: Protocol, slot: usize) -> std::io::Result<()> {
        self.number += 1;
        self.reply.clear();
        let request = protocol.request(slot as u64, self.number);
        self.sent_at = Instant::now();
        // An empty socket buffer accepts a request at once.
        let sent = self.stream.write(&request)?;
        assert_eq!(sent, request.len());
        self.is_active = true;
        Ok(())
    }

    /// Reads what has arrived. Returns whether the reply is complete.
    fn receive(&mut self, protocol: Protocol, slot: usize) -> std::io::Result<bool> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => self.reply.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.stream_is_awaited() => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        if !self.is_active {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "a reply without a request"));
        }
        let is_complete = protocol.is_complete(slot as u64, self.number, &self.reply)?;
        self.is_active = !is_complete;
        Ok(is_complete)
    }

    /// Returns whether the stream is non-blocking, so that EAGAIN is no time-out.
    fn stream_is_awaited(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.stream)
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }
}

/// Connects to 127.0.0.1 with a time limit for replies.
fn connect(port: u16) -> std::io::Result<TcpStream> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use rustix::net::sockopt::set_tcp_cork;

    use super::*;

    /// A server that echoes on `count` connections, of which it closes the last `closed` after the
    /// first request.
    fn echo(count: usize, closed: usize) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for i in 0..count {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        stream.write_all(&buffer[..read]).unwrap();
                        if i >= count - closed {
                            return;
                        }
                    }
                });
            }
        });
        port
    }

    #[test]
    fn every_reply_is_counted_and_all_connections_are_used() {
        let mut load = Load::connect(Protocol::Echo, echo(20, 0), 20, 3).unwrap();
        let slice = load.run(Duration::from_millis(50)).unwrap();
        assert!(slice.requests > 0 && slice.late.len() <= slice.requests + 3);
        assert_eq!(slice.dropped, 0);
        let used: Vec<u64> = load.connections.iter().flatten().map(|one| one.number).collect();
        // The first request of each came while it was opened.
        assert_eq!(used.iter().sum::<u64>(), 20 + slice.late.len());
    }

    #[test]
    fn closed_connections_are_counted_as_dropped() {
        let mut load = Load::connect(Protocol::Echo, echo(4, 2), 4, 4).unwrap();
        let slice = load.run(Duration::from_millis(50)).unwrap();
        assert!(slice.requests > 0);
        assert_eq!(slice.dropped, 2);
    }

    #[test]
    fn connection_that_ends_with_its_reply_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 64];
            let read = stream.read(&mut buffer).unwrap();
            stream.write_all(&buffer[..read]).unwrap();
            let read = stream.read(&mut buffer).unwrap();
            // One segment has the reply and the end.
            set_tcp_cork(&stream, true).unwrap();
            stream.write_all(&buffer[..read]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read(&mut buffer)
        });
        let mut load = Load::connect(Protocol::Echo, port, 1, 1).unwrap();
        let slice = load.run(Duration::ZERO).unwrap();
        assert_eq!((slice.late.len(), slice.dropped), (1, 1));
    }

    #[test]
    fn wrong_reply_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 64];
            let read = stream.read(&mut buffer).unwrap();
            stream.write_all(&vec![9; read]).unwrap();
            stream.read(&mut buffer)
        });
        let error = Load::connect(Protocol::Echo, port, 1, 1).err().expect("a wrong reply");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
