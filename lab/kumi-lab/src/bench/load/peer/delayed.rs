//! Server of `long`: the reply to a request for `/2000` follows after 2,000 ms. One thread with
//! epoll.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_unwrapped::reply;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, socket_with};

/// Length of the accept queue, limited by `net.core.somaxconn`: thousands of connections arrive at
/// once, and a connection that does not fit is retried after a second.
const BACKLOG: i32 = 8_192;
/// Size of the longest request.
const SIZE: usize = 1024;
/// Number of the listener among the connections.
const LISTENER: u64 = u64::MAX;

/// Serves until the process ends.
pub fn listen() -> io::Result<u16> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    net::listen(&socket, BACKLOG)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let mut server = Server::new(listener)?;
    thread::Builder::new().spawn(move || {
        if let Err(e) = server.serve() {
            eprintln!("bench-peer long: {e}");
            std::process::exit(1);
        }
    })?;
    Ok(port)
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
}

struct Server {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: HashMap<u64, Connection>,
    accepted: u64,
    /// Due replies: time, connection, and path of the request.
    due: BinaryHeap<Reverse<(Instant, u64, String)>>,
}

impl Server {
    fn new(listener: TcpListener) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Server {
            epoll,
            listener,
            connections: HashMap::new(),
            accepted: 0,
            due: BinaryHeap::new(),
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 256];
        loop {
            let wait = self
                .due
                .peek()
                .map(|Reverse((at, ..))| at.saturating_duration_since(Instant::now()));
            let wait = wait
                .map(|w| Timespec { tv_sec: w.as_secs() as i64, tv_nsec: w.subsec_nanos().into() });
            let ready = match epoll::wait(&self.epoll, &mut events, wait.as_ref()) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            for event in ready {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    number => self.receive(number),
                }
            }
            self.answer();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            stream.set_nonblocking(true)?;
            let number = self.accepted;
            self.accepted += 1;
            epoll::add(
                &self.epoll,
                &stream,
                epoll::EventData::new_u64(number),
                epoll::EventFlags::IN,
            )?;
            self.connections.insert(number, Connection { stream, request: Vec::new() });
        }
    }

    /// Receives a request. Closes a connection that ends, fails, or requests something other than a
    /// delay.
    fn receive(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut buffer = [0; SIZE];
        match connection.stream.read(&mut buffer) {
            Ok(n) if n > 0 && connection.request.len() < SIZE => {
                connection.request.extend(&buffer[..n])
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            _ => {
                self.connections.remove(&number);
                return;
            }
        }
        if !connection.request.ends_with(b"\r\n\r\n") {
            return;
        }
        match path_and_delay(&connection.request) {
            Some((path, delay)) => {
                connection.request.clear();
                self.due.push(Reverse((Instant::now() + delay, number, path)));
            }
            None => _ = self.connections.remove(&number),
        }
    }

    /// Sends all due replies, and closes their connections as the requests demand.
    fn answer(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((at, ..))) = self.due.peek()
            && *at <= now
        {
            let Some(Reverse((_, number, path))) = self.due.pop() else { return };
            if let Some(mut connection) = self.connections.remove(&number) {
                // A client that has disconnected needs no reply.
                let _ = connection.stream.write_all(&reply(&path));
            }
        }
    }
}

/// Parses `GET /2000 HTTP/1.1` etc. into the path and 2,000 ms.
fn path_and_delay(request: &[u8]) -> Option<(String, Duration)> {
    let path = str::from_utf8(request).ok()?.split(' ').nth(1)?;
    let ms = path.strip_prefix('/')?.parse().ok()?;
    Some((path.to_owned(), Duration::from_millis(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(port: u16, path: &str) -> (Vec<u8>, Duration) {
        let begin = Instant::now();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server");
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").expect("the server");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (answer, begin.elapsed())
    }

    #[test]
    fn replies_are_sent_when_due() {
        let port = listen().expect("a port");
        let later = thread::spawn(move || asked(port, "/40"));
        assert_eq!(asked(port, "/1").0, reply("/1"));
        let (answer, took) = later.join().expect("no panic");
        assert!(answer == reply("/40") && took >= Duration::from_millis(40));
        assert_eq!(asked(port, "/soon").0, b"");
    }
}
