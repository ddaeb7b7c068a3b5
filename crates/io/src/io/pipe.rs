//! Anonymous pipes.

use std::io;

use kumihimo_resource::id::Id;

use crate::descriptor::Descriptor;
use crate::fd_traits::{pipe_end, reads, writes};

/// The reading end of a pipe, as [`std::io::PipeReader`].
pub struct PipeReader(pub(crate) Descriptor<std::io::PipeReader>);

/// The writing end of a pipe, as [`std::io::PipeWriter`].
pub struct PipeWriter(pub(crate) Descriptor<std::io::PipeWriter>);

pipe_end!(PipeReader, std::io::PipeReader);
pipe_end!(PipeWriter, std::io::PipeWriter);
reads!(PipeReader);
writes!(PipeWriter);

/// Creates a pipe. A read waits for data, and returns 0 when all writers are closed. A write waits
/// for room, may be short, and fails with `BrokenPipe` when all readers are closed.
///
/// # Errors
/// No descriptor left.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((reader.into(), writer.into()))
}

impl PipeReader {
    /// ID of this handle in the resource table, of kind `file`. `None` if the table was full when
    /// the handle was made.
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }

    /// A second handle to the same end.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        self.0.inner.try_clone().map(PipeReader::from)
    }
}

impl PipeWriter {
    /// ID of this handle in the resource table, of kind `file`. `None` if the table was full when
    /// the handle was made.
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }

    /// A second handle to the same end.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        self.0.inner.try_clone().map(PipeWriter::from)
    }
}
