//! Anonymous pipes.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::process::Stdio;

use crate::descriptor::{Descriptor, FileClass};

/// `Read` for a type of ours and for references to it.
macro_rules! reads {
    ($ours:ident) => {
        reads!(for &$ours);
        reads!(for $ours);
    };
    (for $type:ty) => {
        impl Read for $type {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.read(buf)
            }
            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.read_vectored(bufs)
            }
        }
    };
}

/// `Write` for a type of ours and for references to it.
macro_rules! writes {
    ($ours:ident) => {
        writes!(for &$ours);
        writes!(for $ours);
    };
    (for $type:ty) => {
        impl Write for $type {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.0.write(buf)
            }
            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0.write_vectored(bufs)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

/// From and to std's type, and as a child's standard stream.
macro_rules! pipe_end {
    ($ours:ident, $theirs:ty) => {
        descriptor_traits!($ours, $theirs);

        impl From<$theirs> for $ours {
            fn from(end: $theirs) -> $ours {
                $ours(Descriptor::with_class(end, FileClass::Polled))
            }
        }

        impl From<$ours> for $theirs {
            fn from(end: $ours) -> $theirs {
                end.0.inner
            }
        }

        impl From<$ours> for Stdio {
            fn from(end: $ours) -> Stdio {
                end.0.inner.into()
            }
        }
    };
}

pub(crate) use {pipe_end, reads, writes};

/// The end of a pipe that is read, as [`std::io::PipeReader`].
pub struct PipeReader(pub(crate) Descriptor<std::io::PipeReader>);

/// The end of a pipe that is written, as [`std::io::PipeWriter`].
pub struct PipeWriter(pub(crate) Descriptor<std::io::PipeWriter>);

pipe_end!(PipeReader, std::io::PipeReader);
pipe_end!(PipeWriter, std::io::PipeWriter);
reads!(PipeReader);
writes!(PipeWriter);

/// A pipe. A read waits until there is something, and says 0 when all writers are gone; a write
/// waits until there is room, may be short, and is `BrokenPipe` when all readers are gone.
///
/// # Errors
/// No descriptor left.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((reader.into(), writer.into()))
}

impl PipeReader {
    /// A second handle to the same end.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        self.0.inner.try_clone().map(PipeReader::from)
    }
}

impl PipeWriter {
    /// A second handle to the same end.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        self.0.inner.try_clone().map(PipeWriter::from)
    }
}
