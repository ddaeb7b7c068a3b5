//! Load generator of `echo`: a closed loop over many connections in one kernel thread with epoll.
//! The same for every server.

use std::io::{BufRead, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::{Lateness, raise_descriptors};
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::await_replies;

/// Size of a request and of its reply.
const SIZE: usize = 64;

#[derive(clap::Args)]
pub struct Args {
    /// Port of the server on 127.0.0.1
    port: u16,
    /// Number of connections, each with one outstanding request
    connections: usize,
}

/// Connects and prints `ready`. Then each line of standard input is a number of milliseconds for
/// which to run the loop. The reply is `REQUESTS SECONDS P50 P99 P999 ALL` (microseconds, of all
/// replies; ALL includes requests that were outstanding at the end). With 0 ms: one request over
/// each connection.
pub fn run(args: Args) -> Result<(), String> {
    raise_descriptors();
    let mut load = Load::connect(args.port, args.connections).map_err(|e| format!("load: {e}"))?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| format!("load: {e}"))?;
        let millis: u64 = line
            .trim()
            .parse()
            .map_err(|_| format!("load: {line:?} is not a number of milliseconds"))?;
        let slice = load.run(Duration::from_millis(millis)).map_err(|e| format!("load: {e}"))?;
        let late = &slice.late;
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| late.us(q));
        println!(
            "{} {} {p50} {p99} {p999} {}",
            slice.requests,
            slice.took.as_secs_f64(),
            late.len()
        );
    }
    Ok(())
}

/// A connection with at most one outstanding request.
pub struct Connection {
    stream: TcpStream,
    request: [u8; SIZE],
    got: usize,
    sent_at: Instant,
}

/// A closed loop over its connections.
pub struct Load {
    epoll: OwnedFd,
    connections: Vec<Connection>,
}

pub struct Slice {
    /// Latencies of all replies: leaving out the last ones would favour a slow server.
    pub late: Lateness,
    pub took: Duration,
    /// Number of replies within the slice.
    pub requests: u64,
}

/// Connections from one address to one port, limited by the ephemeral ports: by default the system
/// has 28,232.
const FROM_ONE: usize = 20_000;

/// Opens connections, and an epoll instance with all of them by number.
pub fn connect(port: u16, count: usize) -> std::io::Result<(OwnedFd, Vec<Connection>)> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::with_capacity(count);
    for i in 0..count {
        let stream = connect_from(i / FROM_ONE, port)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        // Edge-triggered: the kernel checks each ready socket once. A load generator that needs
        // more CPU time than the servers would measure itself.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &stream, epoll::EventData::new_u64(i as u64), flags)?;
        connections.push(Connection {
            stream,
            request: [0; SIZE],
            got: 0,
            sent_at: Instant::now(),
        });
    }
    Ok((epoll, connections))
}

/// Connects from 127.0.0.1 or a following address. All of 127.0.0.0/8 belongs to this machine.
fn connect_from(further: usize, port: u16) -> std::io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if further > 0 {
        let from = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + further as u32);
        bind(&socket, &SocketAddrV4::new(from, 0))?;
    }
    net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    Ok(socket.into())
}

impl Load {
    pub fn connect(port: u16, count: usize) -> std::io::Result<Self> {
        let (epoll, connections) = connect(port, count)?;
        Ok(Load { epoll, connections })
    }

    /// Runs the loop, and then receives the outstanding replies.
    pub fn run(&mut self, length: Duration) -> std::io::Result<Slice> {
        let mut late = Lateness::default();
        let end = Instant::now() + length;
        for connection in &mut self.connections {
            connection.send(Instant::now())?;
        }
        let (mut under_way, mut requests) = (self.connections.len(), 0);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 256];
        while under_way > 0 {
            for event in await_replies(&self.epoll, &mut events, under_way)? {
                let connection = &mut self.connections[event.data.u64() as usize];
                if !connection.receive()? {
                    continue;
                }
                let now = Instant::now();
                late.record(now - connection.sent_at);
                if now < end {
                    requests += 1;
                    connection.send(now)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        // On a busy machine there may be no reply within the whole slice. This is a rate of 0, not
        // a failure.
        Ok(Slice { late, took: length, requests })
    }
}

impl Connection {
    /// Sends the next request.
    pub fn send(&mut self, now: Instant) -> std::io::Result<()> {
        let number =
            u64::from_le_bytes(self.request[..8].try_into().expect("eight bytes")).wrapping_add(1);
        self.request[..8].copy_from_slice(&number.to_le_bytes());
        self.got = 0;
        self.sent_at = now;
        // An empty socket buffer accepts 64 bytes at once.
        let sent = self.stream.write(&self.request)?;
        assert_eq!(sent, SIZE);
        Ok(())
    }

    /// Returns whether the reply is complete. One read takes all available bytes: there is never
    /// more than the rest of a reply, and less causes another edge.
    pub fn receive(&mut self) -> std::io::Result<bool> {
        let mut reply = [0; SIZE];
        let read = self.stream.read(&mut reply[self.got..])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if reply[self.got..self.got + read] != self.request[self.got..self.got + read] {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "the reply differs from the request",
            ));
        }
        self.got += read;
        Ok(self.got == SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoed_bytes_are_counted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    let (stream, _) = listener.accept().unwrap();
                    scope.spawn(move || std::io::copy(&mut &stream, &mut &stream).unwrap());
                }
            });
        });
        let mut load = Load::connect(port, 3).unwrap();
        for _ in 0..2 {
            let slice = load.run(Duration::from_millis(20)).unwrap();
            assert!(slice.requests > 3 && !slice.took.is_zero());
            assert_eq!(slice.late.len(), slice.requests + 3);
        }
        drop(load);
        server.join().unwrap();
    }

    #[test]
    fn wrong_reply_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[9; SIZE]).unwrap();
            stream
        });
        let mut load = Load::connect(port, 1).unwrap();
        let error = load.run(Duration::from_millis(20)).err().expect("a wrong reply");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        server.join().unwrap();
    }
}
