//! Clients of `http`: on each connection, the next request follows the reply.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use kumihimo_bench_unwrapped::reply;
use rustix::event::epoll;
use rustix::io::Errno;

/// Size of the longest reply.
const SIZE: usize = 1024;

/// Waits for contenders, one after the other. Each sends `PORT CONNECTIONS REQUESTS`: the port of
/// its server, the number of connections, and the number of requests over each.
pub fn listen() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::Builder::new().spawn(move || {
        for contender in listener.incoming() {
            if let Err(e) = contender.and_then(serve) {
                eprintln!("bench-peer http: {e}");
            }
        }
    })?;
    Ok(port)
}

fn serve(contender: TcpStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(contender).read_line(&mut line)?;
    let words: Vec<_> = line.split_whitespace().collect();
    let (port, connections, requests) = match words[..] {
        [port, connections, requests] => (port.parse(), connections.parse(), requests.parse()),
        _ => return Err(invalid(&line)),
    };
    match (port, connections, requests) {
        (Ok(port), Ok(connections), Ok(requests)) if requests > 0 => {
            drive(port, connections, requests)
        }
        _ => Err(invalid(&line)),
    }
}

fn invalid(line: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{line:?}: expected PORT CONNECTIONS REQUESTS"))
}

/// Sends `requests` requests over each connection, and closes it after the last reply.
fn drive(port: u16, connections: usize, requests: usize) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut all = Vec::with_capacity(connections);
    for number in 0..connections {
        let connection = Connection::open(port, number, requests)?;
        // Edge-triggered: a load generator that needs more CPU time than the server would measure
        // itself.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&epoll, &connection.stream, epoll::EventData::new_u64(number as u64), flags)?;
        all.push(Some(connection));
    }
    for connection in all.iter_mut().flatten() {
        connection.send()?;
    }
    let mut open = connections;
    let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 256];
    while open > 0 {
        let ready = match epoll::wait(&epoll, &mut events, None) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        for event in ready {
            let place = &mut all[event.data.u64() as usize];
            let Some(connection) = place else { continue };
            if !connection.receive()? {
                continue;
            }
            if connection.left > 0 {
                // Edge-triggered: a FIN that arrives together with the reply causes no further
                // event.
                let flags = event.flags;
                if flags.contains(epoll::EventFlags::RDHUP) {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                connection.send()?;
            } else {
                *place = None;
                open -= 1;
            }
        }
    }
    Ok(())
}

/// A connection with one outstanding request.
struct Connection {
    stream: TcpStream,
    number: usize,
    /// Number of requests after the outstanding one.
    left: usize,
    expected: Vec<u8>,
    received: usize,
}

impl Connection {
    fn open(port: u16, number: usize, requests: usize) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, number, left: requests, expected: Vec::new(), received: 0 })
    }

    fn send(&mut self) -> io::Result<()> {
        self.left -= 1;
        let path = format!("/{}/{}", self.number, self.left);
        self.expected = reply(&path);
        self.received = 0;
        let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\naccept: */*\r\n\r\n");
        // An empty socket buffer accepts so few bytes at once.
        self.stream.write_all(request.as_bytes())
    }

    /// Reads the available bytes. Returns whether the reply is complete.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; SIZE];
        // One read takes everything, because nothing follows the reply.
        let n = match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            done => done?,
        };
        if self.expected[self.received..].get(..n) != Some(&buffer[..n]) {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the reply differs from the expected one",
            ));
        }
        self.received += n;
        Ok(self.received == self.expected.len())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    /// Runs the load against a contender with one connection that sends `replies`. Returns the
    /// load's result.
    fn answered(replies: &'static [&'static str]) -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the load");
            for path in replies {
                let mut request = [0; SIZE];
                let n = stream.read(&mut request).expect("the load");
                assert!(request[..n].ends_with(b"\r\n\r\n"));
                stream.write_all(&reply(path)).expect("the load");
            }
            stream.shutdown(Shutdown::Write).expect("it is open");
            // An unread request would cause a reset.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let outcome = drive(port, 1, 2);
        server.join().expect("no panic");
        outcome
    }

    #[test]
    fn every_reply_is_compared() {
        answered(&["/0/1", "/0/0"]).expect("both are right");
        assert_eq!(answered(&["/0/9"]).expect_err("wrong").kind(), ErrorKind::InvalidData);
        assert_eq!(answered(&["/0/1"]).expect_err("closed").kind(), ErrorKind::UnexpectedEof);
    }
}
