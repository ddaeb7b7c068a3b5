//! The socket of a connection, TCP or UNIX.

use std::io::{self, Read, Write};

use kumihimo::net::{Shutdown, TcpStream, UnixStream};

/// A connected socket. Several microprocesses may use it at the same time.
pub enum Stream {
    /// From `--listen`.
    Tcp(TcpStream),
    /// From `--unix`.
    Unix(UnixStream),
}

impl Stream {
    /// Shuts down one or both directions, which wakes microprocesses that wait on the socket. Has
    /// no effect on a socket that is already shut down.
    pub fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }

    /// Sets the longest time that a read waits.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_read_timeout(&self, time: Option<std::time::Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(buf),
            Stream::Unix(stream) => (&mut &*stream).read(buf),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(buf),
            Stream::Unix(stream) => (&mut &*stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
