//! The socket of a connection, TCP or UNIX.

use std::io::{self, Read, Write};

use kumihimo::net::{Shutdown, TcpStream, UnixStream};
use kumihimo::thread;

/// Bytes that are written before other microprocesses run: the kernel copies them.
const SLICE: usize = 64 << 10;

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

    /// Writes all of `bytes`, in slices between which other microprocesses run.
    ///
    /// # Errors
    /// As write(2).
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut slices = bytes.chunks(SLICE).peekable();
        while let Some(slice) = slices.next() {
            (&mut &*self).write_all(slice)?;
            if slices.peek().is_some() {
                thread::yield_now();
            }
        }
        Ok(())
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
