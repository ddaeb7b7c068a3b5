//! Readers and writers that end in a descriptor, seen through their buffers and limits.

use std::io::{self, BufReader, BufWriter, Read, Take, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use kumihimo_runtime::readiness::Interest;

use super::super::pipe::{PipeReader, PipeWriter};
use super::super::raw::Raw;
use super::super::stdin::StdinLock;
use super::super::stdout::{StderrLock, StdoutLock};
use crate::descriptor::status;
use crate::fs::File;
use crate::net::{TcpStream, UnixStream};
use crate::process::{ChildStderr, ChildStdin, ChildStdout};

/// What fstat(2) reports about a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileType {
    /// A regular file without contents, or one whose size is not reported (procfs).
    Empty,
    Regular,
    BlockDevice,
    Fifo,
    Socket,
    Other,
}

impl FileType {
    fn of(fd: BorrowedFd<'_>) -> FileType {
        let Ok(status) = status(fd) else {
            return FileType::Other;
        };
        match status.st_mode & libc::S_IFMT {
            libc::S_IFREG if status.st_size == 0 => FileType::Empty,
            libc::S_IFREG => FileType::Regular,
            libc::S_IFBLK => FileType::BlockDevice,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            _ => FileType::Other,
        }
    }
}

/// A descriptor behind a reader or writer.
pub(super) trait End: AsFd {
    fn file_type(&self) -> FileType {
        FileType::of(self.as_fd())
    }

    /// Waits until splice(2) can make progress.
    fn ready(&self, interest: Interest) -> io::Result<()>;
}

/// A reader that ends in a descriptor.
pub(super) trait Source: Read {
    /// Writes what its buffers hold, the outermost first, and at most `limit` bytes.
    fn drain(&mut self, _writer: &mut dyn Sink, _limit: u64) -> io::Result<u64> {
        Ok(0)
    }

    /// Takes `bytes` off the limits, after they were read past them.
    fn taken(&mut self, _bytes: u64) {}

    /// The number of bytes that may be read. Valid when its buffers are empty.
    fn limit(&self) -> u64 {
        u64::MAX
    }

    fn end(&self) -> &dyn End;

    /// The descriptor itself, without buffers and limits.
    fn innermost(&mut self) -> &mut dyn Read;
}

/// A writer that ends in a descriptor.
pub(super) trait Sink: Write {
    fn end(&self) -> &dyn End;
}

impl<T: Source> Source for Take<T> {
    fn drain(&mut self, writer: &mut dyn Sink, limit: u64) -> io::Result<u64> {
        let own = Take::limit(self);
        let drained = self.get_mut().drain(writer, limit.min(own))?;
        self.set_limit(own - drained);
        Ok(drained)
    }

    fn taken(&mut self, bytes: u64) {
        self.set_limit(Take::limit(self) - bytes);
        self.get_mut().taken(bytes);
    }

    fn limit(&self) -> u64 {
        Take::limit(self).min(self.get_ref().limit())
    }

    fn end(&self) -> &dyn End {
        self.get_ref().end()
    }

    fn innermost(&mut self) -> &mut dyn Read {
        self.get_mut().innermost()
    }
}

impl<T: Source> Source for BufReader<T> {
    fn drain(&mut self, writer: &mut dyn Sink, limit: u64) -> io::Result<u64> {
        let held = self.buffer();
        let own = usize::try_from(limit).map_or(held.len(), |limit| limit.min(held.len()));
        writer.write_all(&held[..own])?;
        io::BufRead::consume(self, own);
        let rest = limit - own as u64;
        Ok(own as u64 + if rest > 0 { self.get_mut().drain(writer, rest)? } else { 0 })
    }

    fn taken(&mut self, bytes: u64) {
        self.get_mut().taken(bytes);
    }

    fn limit(&self) -> u64 {
        self.get_ref().limit()
    }

    fn end(&self) -> &dyn End {
        self.get_ref().end()
    }

    fn innermost(&mut self) -> &mut dyn Read {
        self.get_mut().innermost()
    }
}

impl<T: Source> Source for &mut T {
    fn drain(&mut self, writer: &mut dyn Sink, limit: u64) -> io::Result<u64> {
        (**self).drain(writer, limit)
    }

    fn taken(&mut self, bytes: u64) {
        (**self).taken(bytes);
    }

    fn limit(&self) -> u64 {
        (**self).limit()
    }

    fn end(&self) -> &dyn End {
        (**self).end()
    }

    fn innermost(&mut self) -> &mut dyn Read {
        (**self).innermost()
    }
}

impl<T: Sink> Sink for BufWriter<T> {
    fn end(&self) -> &dyn End {
        self.get_ref().end()
    }
}

impl<T: Sink> Sink for &mut T {
    fn end(&self) -> &dyn End {
        (**self).end()
    }
}

impl Source for StdinLock<'_> {
    fn drain(&mut self, writer: &mut dyn Sink, limit: u64) -> io::Result<u64> {
        self.buffered().drain(writer, limit)
    }

    fn end(&self) -> &dyn End {
        self
    }

    fn innermost(&mut self) -> &mut dyn Read {
        self.buffered().get_mut()
    }
}

impl Source for Raw {
    fn end(&self) -> &dyn End {
        self
    }

    fn innermost(&mut self) -> &mut dyn Read {
        self
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl End for Raw {
    fn ready(&self, interest: Interest) -> io::Result<()> {
        self.descriptor().ready(interest)
    }
}

macro_rules! standard_streams {
    ($($stream:ty),*) => {
        $(
            impl End for $stream {
                fn ready(&self, interest: Interest) -> io::Result<()> {
                    Raw(self.as_raw_fd()).ready(interest)
                }
            }
        )*
    };
}

standard_streams!(StdinLock<'_>, StdoutLock<'_>, StderrLock<'_>);

/// A type around a `Descriptor` of a file or pipe.
macro_rules! descriptors {
    ($($type:ty),*) => {
        $(
            impl End for $type {
                fn ready(&self, interest: Interest) -> io::Result<()> {
                    self.0.ready(interest)
                }
            }
        )*
    };
}

descriptors!(File, PipeReader, PipeWriter, ChildStdin, ChildStdout, ChildStderr);

macro_rules! sockets {
    ($($type:ty),*) => {
        $(
            impl End for $type {
                fn ready(&self, _: Interest) -> io::Result<()> {
                    // Sockets are not spliced: their own reads and writes wait.
                    Ok(())
                }
            }
        )*
    };
}

sockets!(TcpStream, UnixStream);

macro_rules! sources {
    (for $($type:ty),*) => {
        $(
            impl Source for $type {
                fn end(&self) -> &dyn End {
                    self
                }

                fn innermost(&mut self) -> &mut dyn Read {
                    self
                }
            }
        )*
    };
    ($($type:ty),*) => {
        $(sources!(for $type, &$type);)*
    };
}

macro_rules! sinks {
    (for $($type:ty),*) => {
        $(
            impl Sink for $type {
                fn end(&self) -> &dyn End {
                    self
                }
            }
        )*
    };
    ($($type:ty),*) => {
        $(sinks!(for $type, &$type);)*
    };
}

impl<T: End> End for &T {
    fn file_type(&self) -> FileType {
        (**self).file_type()
    }

    fn ready(&self, interest: Interest) -> io::Result<()> {
        (**self).ready(interest)
    }
}

sources!(File, PipeReader, ChildStdout, ChildStderr, TcpStream, UnixStream);
sinks!(File, PipeWriter, ChildStdin, TcpStream, UnixStream);
sinks!(for StdoutLock<'_>, StderrLock<'_>);
