//! A connection: TCP, TCP with TLS, or UNIX, whose reads and writes end at a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo::net::{Shutdown, TcpStream, UnixStream};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Bytes that are read and discarded after the last answer, so that the client can read it: closing
/// a socket with unread data sends a reset.
const DISCARDED: usize = 64 << 10;
/// Time for that.
const FAREWELL: Duration = Duration::from_secs(2);

/// A socket of either family.
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// UNIX.
    Unix(UnixStream),
}

impl Socket {
    fn limit(&self, left: Duration, reads: bool) -> io::Result<()> {
        let left = Some(left);
        match (self, reads) {
            (Socket::Tcp(socket), true) => socket.set_read_timeout(left),
            (Socket::Tcp(socket), false) => socket.set_write_timeout(left),
            (Socket::Unix(socket), true) => socket.set_read_timeout(left),
            (Socket::Unix(socket), false) => socket.set_write_timeout(left),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }
}

/// A socket with a deadline for everything. A time limit for each read alone would let a client
/// that sends a byte now and then hold a connection for ever.
pub struct Timed {
    socket: Socket,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Both kinds of error mean that the time was over; `WouldBlock` would confuse `rustls`.
fn timed<T>(done: io::Result<T>) -> io::Result<T> {
    done.map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => e,
    })
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.limit(self.left()?, true)?;
        timed(match &mut self.socket {
            Socket::Tcp(socket) => socket.read(into),
            Socket::Unix(socket) => socket.read(into),
        })
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.limit(self.left()?, false)?;
        timed(match &mut self.socket {
            Socket::Tcp(socket) => socket.write(from),
            Socket::Unix(socket) => socket.write(from),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
pub enum Transport {
    /// Without encryption.
    Plain(Timed),
    /// With TLS.
    Tls(Box<StreamOwned<ServerConnection, Timed>>),
}

impl Transport {
    /// Wraps a socket, with TLS if there are settings for it. The handshake takes place in the
    /// first read.
    ///
    /// # Errors
    /// As setsockopt(2), and `rustls` about its settings.
    pub fn new(socket: Socket, tls: Option<&Arc<ServerConfig>>) -> io::Result<Transport> {
        if let Socket::Tcp(socket) = &socket {
            socket.set_nodelay(true)?;
        }
        let timed = Timed { socket, until: Instant::now() };
        Ok(match tls {
            None => Transport::Plain(timed),
            Some(config) => {
                let connection =
                    ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Transport::Tls(Box::new(StreamOwned::new(connection, timed)))
            }
        })
    }

    /// Gives all reads and writes from now on this time together.
    pub fn within(&mut self, time: Duration) {
        let until = Instant::now() + time;
        match self {
            Transport::Plain(timed) => timed.until = until,
            Transport::Tls(stream) => stream.sock.until = until,
        }
    }

    /// Ends the connection so that the client receives all that was written.
    pub fn farewell(&mut self) {
        self.within(FAREWELL);
        let timed = match self {
            Transport::Plain(timed) => timed,
            Transport::Tls(stream) => {
                stream.conn.send_close_notify();
                // A client that has gone needs no farewell.
                let _ = stream.flush();
                &mut stream.sock
            }
        };
        if timed.socket.shutdown().is_err() {
            return;
        }
        let mut discarded = 0;
        let mut some = [0; 4096];
        while discarded < DISCARDED {
            match timed.read(&mut some) {
                Ok(n @ 1..) => discarded += n,
                _ => break,
            }
        }
    }
}

impl Read for Transport {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(timed) => timed.read(into),
            Transport::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(timed) => timed.write(from),
            Transport::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(timed) => timed.flush(),
            Transport::Tls(stream) => stream.flush(),
        }
    }
}
