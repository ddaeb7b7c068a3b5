//! Anonymous pipes.

use std::io;

use kumihimo_resource::id::Id;

use crate::descriptor::Descriptor;
use crate::fd_traits::{pipe_end, reads, writes};

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
