//! The two directions of a stream as two values, for two microprocesses.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

/// The reading half of a stream that was lent: see [`TcpStream::split`](super::TcpStream::split).
#[derive(Clone, Copy, Debug)]
pub struct ReadHalf<'a, S>(&'a S);

/// The writing half of a stream that was lent. Its end does nothing: the stream is still there, and
/// says [`shutdown`](super::TcpStream::shutdown).
#[derive(Clone, Copy, Debug)]
pub struct WriteHalf<'a, S>(&'a S);

/// The reading half of a stream: see [`TcpStream::into_split`](super::TcpStream::into_split).
pub struct OwnedReadHalf<S>(Arc<S>);

/// The writing half of a stream. **Dropping it ends the writing direction** (`Shutdown::Write`):
/// the other side reads to the end of what was written, while the reading half goes on reading.
/// [`keep_open`](OwnedWriteHalf::keep_open) does without.
pub struct OwnedWriteHalf<S> {
    stream: Arc<S>,
    /// What ends the direction; none: nothing is to.
    end: Option<fn(&S) -> io::Result<()>>,
}

/// Two halves that are not of one stream; they are given back.
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
    /// The stream again, whole.
    ///
    /// # Errors
    /// Both halves, if they are those of different streams.
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
    /// Drops it without ending the direction: that ends when the reading half is dropped as well,
    /// with the whole stream.
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
