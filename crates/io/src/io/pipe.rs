//! Anonymous pipes.

use std::io;

use kumihimo_resource::id::Id;

use crate::descriptor::Descriptor;
use crate::fd_traits::{pipe_end, reads, writes};

/// The reading end of a pipe, as [`std::io::PipeReader`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, BufRead, BufReader, Write};
/// use kumihimo::thread;
///
/// let (reader, mut writer) = io::pipe()?;
/// let printer = thread::spawn(move || writeln!(writer, "{}, {}", 1, 2));
/// let mut lines = BufReader::new(reader).lines();
/// assert_eq!(lines.next().unwrap()?, "1, 2");
/// assert!(lines.next().is_none(), "the writer is closed");
/// printer.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PipeReader(pub(crate) Descriptor<std::io::PipeReader>);

/// The writing end of a pipe, as [`std::io::PipeWriter`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, ErrorKind, Write};
///
/// let (reader, mut writer) = io::pipe()?;
/// writer.write_all(b"kept")?;
/// drop(reader);
/// assert_eq!(writer.write_all(b"lost").unwrap_err().kind(), ErrorKind::BrokenPipe);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PipeWriter(pub(crate) Descriptor<std::io::PipeWriter>);

pipe_end!(PipeReader, std::io::PipeReader);
pipe_end!(PipeWriter, std::io::PipeWriter);
reads!(PipeReader);
writes!(PipeWriter);

/// Creates a pipe. A read blocks the microprocess until there is data, and returns 0 when all
/// writers are closed. A write blocks the microprocess until there is room, may be short, and fails
/// with `BrokenPipe` when all readers are closed.
///
/// # Errors
/// No descriptor left.
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Read, Write};
/// use kumihimo::thread;
///
/// let (mut reader, mut writer) = io::pipe()?;
/// let sender = thread::spawn(move || writer.write_all(b"through the pipe"));
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?; // until the writer is dropped
/// assert_eq!(text, "through the pipe");
/// sender.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((reader.into(), writer.into()))
}

impl PipeReader {
    /// ID of this handle in the resource table, of kind `file`. `None` if the table was full when
    /// the handle was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::io;
    /// use kumihimo::resource::Kind;
    ///
    /// let (reader, writer) = io::pipe()?;
    /// assert_eq!(reader.resource().unwrap().kind(), Kind::FILE);
    /// assert_ne!(reader.resource(), writer.resource());
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::io;
    /// use kumihimo::resource::{Kind, table};
    ///
    /// let (_reader, writer) = io::pipe()?;
    /// let id = writer.resource().unwrap();
    /// assert_eq!(id.kind(), Kind::FILE);
    /// // The table writes to the pipe too.
    /// assert_eq!(table().write(id, b"abc").unwrap(), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
