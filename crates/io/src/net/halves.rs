//! The two directions of a stream as separate values, for two microprocesses.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

/// The borrowed reading half of a stream: see [`TcpStream::split`](super::TcpStream::split).
///
/// # Examples
///
/// ```
/// use kumihimo::net::UnixStream;
/// use std::io::{Read, Write};
///
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (mut reader, _writer) = stream.split();
/// peer.write_all(b"data")?;
/// let mut data = [0; 4];
/// reader.read_exact(&mut data)?;
/// assert_eq!(&data, b"data");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReadHalf<'a, S>(&'a S);

/// The borrowed writing half of a stream. Dropping it has no effect on the connection: the stream
/// still exists, and offers [`shutdown`](super::TcpStream::shutdown).
///
/// # Examples
///
/// ```
/// use kumihimo::net::{Shutdown, UnixStream};
/// use std::io::{Read, Write};
///
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (_reader, mut writer) = stream.split();
/// writer.write_all(b"data")?;
/// stream.shutdown(Shutdown::Write)?;
/// let mut data = String::new();
/// peer.read_to_string(&mut data)?;
/// assert_eq!(data, "data");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WriteHalf<'a, S>(&'a S);

/// The reading half of a stream: see [`TcpStream::into_split`](super::TcpStream::into_split).
///
/// # Examples
///
/// ```
/// use kumihimo::net::UnixStream;
/// use kumihimo::thread;
/// use std::io::{BufRead, BufReader, Write};
///
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (reader, _writer) = stream.into_split();
/// let lines = thread::spawn(move || BufReader::new(reader).lines().count());
/// peer.write_all(b"one\ntwo\n")?;
/// drop(peer);
/// assert_eq!(lines.join().unwrap(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct OwnedReadHalf<S>(Arc<S>);

/// The writing half of a stream. **Dropping it shuts down writing** (`Shutdown::Write`): the peer
/// reads to the end of the data, while the reading half remains usable.
/// [`keep_open`](OwnedWriteHalf::keep_open) drops it without a shutdown.
///
/// # Examples
///
/// ```
/// use kumihimo::net::UnixStream;
/// use std::io::{Read, Write};
///
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (_reader, mut writer) = stream.into_split();
/// writer.write_all(b"all of it")?;
/// drop(writer);
/// let mut text = String::new();
/// peer.read_to_string(&mut text)?;
/// assert_eq!(text, "all of it");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct OwnedWriteHalf<S> {
    stream: Arc<S>,
    /// Function that shuts down writing; `None` after `keep_open` or `reunite`.
    end: Option<fn(&S) -> io::Result<()>>,
}

/// The error of reuniting halves of different streams; contains both.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{ReuniteError, UnixStream};
///
/// let (one, other) = UnixStream::pair()?;
/// let (read_one, write_one) = one.into_split();
/// let (read_other, write_other) = other.into_split();
///
/// let error = read_one.reunite(write_other).unwrap_err();
/// assert_eq!(error.to_string(), "these halves are not of one stream");
/// let ReuniteError(read_one, write_other) = error;
/// assert!(read_one.reunite(write_one).is_ok());
/// assert!(read_other.reunite(write_other).is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ReuniteError<S>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

/// Borrows `stream` as its two halves.
pub(super) fn borrowed<S>(stream: &S) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
    (ReadHalf(stream), WriteHalf(stream))
}

/// Splits `stream` into two halves; dropping the writing one calls `end`.
pub(super) fn owned<S>(
    stream: S,
    end: fn(&S) -> io::Result<()>,
) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream, end: Some(end) })
}

impl<S> OwnedReadHalf<S> {
    /// Reunites the halves into the stream.
    ///
    /// # Errors
    /// Both halves, if they belong to different streams.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixStream;
    /// use std::io::{Read, Write};
    ///
    /// let (stream, mut peer) = UnixStream::pair()?;
    /// let (reader, writer) = stream.into_split();
    /// let mut stream = reader.reunite(writer).expect("halves of one stream");
    /// stream.write_all(b"whole")?;
    /// let mut word = [0; 5];
    /// peer.read_exact(&mut word)?;
    /// assert_eq!(&word, b"whole");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reunite(self, mut write: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        if !Arc::ptr_eq(&self.0, &write.stream) {
            return Err(ReuniteError(self, write));
        }
        write.end = None;
        drop(write);
        Ok(Arc::into_inner(self.0).expect("a stream has two halves, and the other one is gone"))
    }
}

impl<S> OwnedWriteHalf<S> {
    /// Drops the half without shutting down writing. The direction ends when the reading half is
    /// dropped too, which closes the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixStream;
    /// use std::io::{ErrorKind, Read};
    ///
    /// let (stream, mut peer) = UnixStream::pair()?;
    /// let (_reader, writer) = stream.into_split();
    /// writer.keep_open();
    /// // The direction has not ended: a read would wait.
    /// peer.set_nonblocking(true)?;
    /// assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn keep_open(mut self) {
        self.end = None;
    }
}

impl<S> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // The connection may be gone already, which ends it as well.
            let _ = end(&self.stream);
        }
    }
}

impl<S> AsRef<S> for ReadHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S> AsRef<S> for WriteHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S> AsRef<S> for OwnedReadHalf<S> {
    fn as_ref(&self) -> &S {
        &self.0
    }
}

impl<S> AsRef<S> for OwnedWriteHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: fmt::Debug> fmt::Debug for OwnedReadHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedReadHalf").field(&self.0).finish()
    }
}

impl<S: fmt::Debug> fmt::Debug for OwnedWriteHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedWriteHalf").field(&self.stream).finish()
    }
}

impl<S> fmt::Debug for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReuniteError")
    }
}

impl<S> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these halves are not of one stream")
    }
}

impl<S> std::error::Error for ReuniteError<S> {}

impl<S> Read for ReadHalf<'_, S>
where
    for<'s> &'s S: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&mut self.as_ref()).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&mut self.as_ref()).read_vectored(bufs)
    }
}

impl<S> Read for OwnedReadHalf<S>
where
    for<'s> &'s S: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&mut self.as_ref()).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&mut self.as_ref()).read_vectored(bufs)
    }
}

impl<S> Write for WriteHalf<'_, S>
where
    for<'s> &'s S: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&mut self.as_ref()).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut self.as_ref()).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut self.as_ref()).flush()
    }
}

impl<S> Write for OwnedWriteHalf<S>
where
    for<'s> &'s S: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&mut self.as_ref()).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut self.as_ref()).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut self.as_ref()).flush()
    }
}
