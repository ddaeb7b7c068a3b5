//! An open file, and the options to open one with.

use std::fmt;
use std::fs::{FileTimes, Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

use kumihimo_resource::id::Id;

use super::call::{call, long_call};
use crate::descriptor::{Descriptor, patient};
use crate::fd_traits::descriptor_traits;

/// An open file, as [`std::fs::File`]. [`std::os::unix::fs::FileExt`] (`read_at`, `write_at`) is
/// implemented for it. Through an `Arc<File>` one reads and writes by `&*file`: Rust lets std alone
/// implement its traits for `Arc`.
pub struct File(pub(crate) Descriptor<std::fs::File>);

descriptor_traits!(File, std::fs::File);

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File(Descriptor::new(file))
    }
}

impl From<File> for std::fs::File {
    fn from(file: File) -> std::fs::File {
        file.0.inner
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.0.inner.into()
    }
}

impl File {
    /// ID of this handle in the resource table, of kind `file`. `None` if the table was full when
    /// the handle was made.
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2).
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing; makes it, or empties it.
    ///
    /// # Errors
    /// As open(2).
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Makes a file, for reading and writing.
    ///
    /// # Errors
    /// As open(2): `AlreadyExists`.
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// As [`OpenOptions::new`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until data and metadata are on the disk. Kernel thread: `blocking`.
    ///
    /// # Errors
    /// As fsync(2): `EIO`, `ENOSPC` of earlier writes show here.
    pub fn sync_all(&self) -> io::Result<()> {
        long_call(|| self.0.inner.sync_all())
    }

    /// Waits until the data are on the disk, and of the metadata what is needed to find them.
    ///
    /// # Errors
    /// As fdatasync(2).
    pub fn sync_data(&self) -> io::Result<()> {
        long_call(|| self.0.inner.sync_data())
    }

    /// Waits until nobody else has a lock on the file, and takes it. Belongs to the open file, so
    /// clones share it; advisory. Neither deadline nor cancellation ends the wait.
    ///
    /// # Errors
    /// As flock(2).
    pub fn lock(&self) -> io::Result<()> {
        self.lock_as(libc::LOCK_EX)
    }

    /// As [`lock`](File::lock), beside others that share.
    ///
    /// # Errors
    /// As flock(2).
    pub fn lock_shared(&self) -> io::Result<()> {
        self.lock_as(libc::LOCK_SH)
    }

    /// Takes the lock if nobody else has one.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if somebody has.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.try_lock_as(libc::LOCK_EX)
    }

    /// As [`try_lock`](File::try_lock), beside others that share.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if somebody has the lock alone.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.try_lock_as(libc::LOCK_SH)
    }

    /// Gives the lock back; so does the end of the last handle.
    ///
    /// # Errors
    /// As flock(2).
    pub fn unlock(&self) -> io::Result<()> {
        self.flock(libc::LOCK_UN)
    }

    fn lock_as(&self, how: libc::c_int) -> io::Result<()> {
        match self.try_lock_as(how) {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => long_call(|| self.flock(how)),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn try_lock_as(&self, how: libc::c_int) -> Result<(), TryLockError> {
        call(|| self.flock(how | libc::LOCK_NB)).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => TryLockError::WouldBlock,
            _ => TryLockError::Error(e),
        })
    }

    fn flock(&self, how: libc::c_int) -> io::Result<()> {
        patient(|| {
            // SAFETY: no pointers.
            match unsafe { libc::flock(self.0.fd(), how) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }

    /// Cuts the file off at `size` bytes, or fills it up with zeros.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        call(|| self.0.inner.set_len(size))
    }

    /// What the file system knows of it.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        let metadata = call(|| self.0.inner.metadata())?;
        self.0.learn(metadata.mode());
        Ok(metadata)
    }

    /// A second handle to the same open file: they share one position.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.inner.try_clone().map(File::from)
    }

    /// Changes its permissions.
    ///
    /// # Errors
    /// As fchmod(2).
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        call(|| self.0.inner.set_permissions(permissions))
    }

    /// Changes its times.
    ///
    /// # Errors
    /// As futimens(3).
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        call(|| self.0.inner.set_times(times))
    }

    /// Changes the time of its last change.
    ///
    /// # Errors
    /// As futimens(3).
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Whether it is a terminal ([`std::io::IsTerminal`] is for std's own types only).
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.0.inner.is_terminal()
    }

    /// Appends all of a file that was just opened.
    pub(super) fn read_whole(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        buf.try_reserve(usize::try_from(self.size()).unwrap_or(0))?;
        self.append(buf)
    }

    /// 0 where it is not known.
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.size())
    }

    /// How much is left to read, as far as is known.
    fn rest(&self) -> usize {
        let size = self.size();
        let position = if size == 0 { 0 } else { (&self.0.inner).stream_position().unwrap_or(0) };
        usize::try_from(size.saturating_sub(position)).unwrap_or(0)
    }

    /// Appends what is left, into the room that there is as long as it lasts.
    fn append(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let before = buf.len();
        loop {
            if buf.len() < buf.capacity() {
                if self.0.read_spare(buf)? == 0 {
                    return Ok(buf.len() - before);
                }
            } else {
                // Likely the end: no room is made to find that out.
                let mut next = [0; 32];
                match self.0.read(&mut next)? {
                    0 => return Ok(buf.len() - before),
                    n => {
                        buf.try_reserve(n)?;
                        buf.extend_from_slice(&next[..n]);
                    }
                }
            }
        }
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        buf.try_reserve(self.rest())?;
        self.append(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")
        })?;
        if buf.is_empty() {
            *buf = text;
            return Ok(buf.len());
        }
        buf.push_str(&text);
        Ok(text.len())
    }
}

impl Write for &File {
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

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            // A network file system asks its server for the size.
            SeekFrom::End(_) => call(|| (&self.0.inner).seek(to)),
            SeekFrom::Start(_) | SeekFrom::Current(_) => (&self.0.inner).seek(to),
        }
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }
}

/// Why a lock was not taken, as std's (of Rust 1.89).
#[derive(Debug)]
pub enum TryLockError {
    /// The call failed.
    Error(io::Error),
    /// Somebody else has it.
    WouldBlock,
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryLockError::Error(e) => e.fmt(f),
            TryLockError::WouldBlock => {
                f.write_str("lock acquisition failed because the operation would block")
            }
        }
    }
}

impl std::error::Error for TryLockError {}

impl From<TryLockError> for io::Error {
    fn from(e: TryLockError) -> io::Error {
        match e {
            TryLockError::Error(e) => e,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}

/// How a file is opened, as [`std::fs::OpenOptions`]. [`std::os::unix::fs::OpenOptionsExt`] is
/// implemented for it.
#[derive(Clone, Debug)]
pub struct OpenOptions(std::fs::OpenOptions);

impl OpenOptions {
    /// Nothing is allowed yet.
    #[allow(clippy::new_without_default)]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions(std::fs::OpenOptions::new())
    }

    /// Whether it may be read.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read(read);
        self
    }

    /// Whether it may be written.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write(write);
        self
    }

    /// Whether each write goes to the end, wherever that is by then.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append(append);
        self
    }

    /// Whether it is emptied.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate(truncate);
        self
    }

    /// Whether it is made if it is not there.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create(create);
        self
    }

    /// Whether it must not be there yet.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new(create_new);
        self
    }

    /// Opens the file. A FIFO is waited for until its other end is opened.
    ///
    /// # Errors
    /// As open(2); `InvalidInput` for options that contradict one another.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        call(|| self.0.open(path)).map(File::from)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(options: std::fs::OpenOptions) -> OpenOptions {
        OpenOptions(options)
    }
}
