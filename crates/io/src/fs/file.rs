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

/// An open file, as [`std::fs::File`]. It implements [`std::os::unix::fs::FileExt`] (`read_at`,
/// `write_at`). To read and write through an `Arc<File>`, use `&*file`: only std can implement its
/// traits for `Arc`. Reads and writes of a stored file block the microprocess and its kernel
/// thread; those of a FIFO, a terminal or a device block the microprocess only.
///
/// # Examples
///
/// ```
/// use kumihimo::fs::File;
/// use kumihimo::fs::unix::FileExt;
/// use kumihimo::io::{Read, Seek, SeekFrom, Write};
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// let mut file = File::create_new("log")?;
/// file.write_all(b"first second")?;
/// file.seek(SeekFrom::Start(6))?;
/// let mut rest = String::new();
/// file.read_to_string(&mut rest)?;
/// assert_eq!(rest, "second");
///
/// let mut word = [0; 5];
/// file.read_exact_at(&mut word, 0)?;
/// assert_eq!(&word, b"first");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fs::File;
    /// use kumihimo::resource::{Kind, table};
    ///
    /// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
    /// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
    /// std::fs::write("notes.txt", "text")?;
    /// let file = File::open("notes.txt")?;
    /// let id = file.resource().unwrap();
    /// assert_eq!(id.kind(), Kind::FILE);
    ///
    /// let mut text = Vec::new();
    /// table().read(id, &mut text).unwrap();
    /// assert_eq!(text, b"text");
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }

    /// Opens a file for reading. Blocks the microprocess and its kernel thread until the call
    /// returns; other microprocesses continue.
    ///
    /// # Errors
    /// As open(2).
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing; creates or truncates it. Blocks the microprocess and its kernel
    /// thread until the call returns; other microprocesses continue.
    ///
    /// # Errors
    /// As open(2).
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file for reading and writing. Blocks the microprocess and its kernel thread until
    /// the call returns; other microprocesses continue.
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

    /// Waits until data and metadata are on the disk, inside `blocking`. Blocks the microprocess
    /// and its kernel thread until the call returns; other microprocesses continue.
    ///
    /// # Errors
    /// As fsync(2): reports `EIO` and `ENOSPC` of earlier writes.
    pub fn sync_all(&self) -> io::Result<()> {
        long_call(|| self.0.inner.sync_all())
    }

    /// Waits until the data and the metadata needed to read them are on the disk. Blocks the
    /// microprocess and its kernel thread until the call returns; other microprocesses continue.
    ///
    /// # Errors
    /// As fdatasync(2).
    pub fn sync_data(&self) -> io::Result<()> {
        long_call(|| self.0.inner.sync_data())
    }

    /// Acquires the exclusive advisory lock of the file. Blocks the microprocess and its kernel
    /// thread until the lock is free; other microprocesses continue. The lock belongs to the open
    /// file, so clones share it. Neither deadline nor cancellation ends the wait.
    ///
    /// # Errors
    /// As flock(2).
    pub fn lock(&self) -> io::Result<()> {
        self.lock_as(libc::LOCK_EX)
    }

    /// As [`lock`](File::lock), for a shared lock.
    ///
    /// # Errors
    /// As flock(2).
    pub fn lock_shared(&self) -> io::Result<()> {
        self.lock_as(libc::LOCK_SH)
    }

    /// Acquires the exclusive lock if it is free. Does not wait for the lock.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another open file holds a lock.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.try_lock_as(libc::LOCK_EX)
    }

    /// As [`try_lock`](File::try_lock), for a shared lock.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another open file holds the exclusive lock.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.try_lock_as(libc::LOCK_SH)
    }

    /// Releases the lock, as dropping the last handle does.
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

    /// Truncates the file to `size` bytes, or extends it with zeros. Blocks the microprocess and
    /// its kernel thread until the call returns; other microprocesses continue.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        call(|| self.0.inner.set_len(size))
    }

    /// Metadata of the file. Blocks the microprocess and its kernel thread until the call returns;
    /// other microprocesses continue.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        let metadata = call(|| self.0.inner.metadata())?;
        self.0.learn(metadata.mode());
        Ok(metadata)
    }

    /// A second handle to the same open file, with the same position.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.inner.try_clone().map(File::from)
    }

    /// Changes the permissions. Blocks the microprocess and its kernel thread until the call
    /// returns; other microprocesses continue.
    ///
    /// # Errors
    /// As fchmod(2).
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        call(|| self.0.inner.set_permissions(permissions))
    }

    /// Changes the times. Blocks the microprocess and its kernel thread until the call returns;
    /// other microprocesses continue.
    ///
    /// # Errors
    /// As futimens(3).
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        call(|| self.0.inner.set_times(times))
    }

    /// Changes the modification time. Blocks the microprocess and its kernel thread until the call
    /// returns; other microprocesses continue.
    ///
    /// # Errors
    /// As futimens(3).
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Whether it is a terminal ([`std::io::IsTerminal`] is for std's own types only).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fs::File;
    ///
    /// assert!(!File::open("/dev/null")?.is_terminal());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.0.inner.is_terminal()
    }

    /// Appends the whole contents of a freshly opened file to `buf`.
    pub(super) fn read_whole(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        buf.try_reserve(usize::try_from(self.size()).unwrap_or(0))?;
        self.append(buf)
    }

    /// Size of the file; 0 if unknown.
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.size())
    }

    /// Number of bytes left to read, if known.
    fn rest(&self) -> usize {
        let size = self.size();
        let position = if size == 0 { 0 } else { (&self.0.inner).stream_position().unwrap_or(0) };
        usize::try_from(size.saturating_sub(position)).unwrap_or(0)
    }

    /// Appends the rest of the file, into the spare capacity first.
    fn append(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let before = buf.len();
        loop {
            if buf.len() < buf.capacity() {
                if self.0.read_spare(buf)? == 0 {
                    return Ok(buf.len() - before);
                }
            } else {
                // Likely the end of the file: probe before growing the buffer.
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
            // A network file system requests the size from its server.
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

/// Reason why a lock was not acquired, as std's (since Rust 1.89).
///
/// # Examples
///
/// ```
/// use kumihimo::fs::{File, TryLockError};
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// let first = File::create("pid")?;
/// first.lock()?;
/// let second = File::open("pid")?;
/// assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
/// drop(first);
/// assert!(second.try_lock().is_ok());
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub enum TryLockError {
    /// The call failed.
    Error(io::Error),
    /// Another open file holds the lock.
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

/// Options for opening a file, as [`std::fs::OpenOptions`]. It implements
/// [`std::os::unix::fs::OpenOptionsExt`].
///
/// # Examples
///
/// ```
/// use kumihimo::fs::{self, OpenOptions};
/// use kumihimo::io::Write;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// for line in ["start", "stop"] {
///     let mut log = OpenOptions::new().append(true).create(true).open("log")?;
///     writeln!(log, "{line}")?;
/// }
/// assert_eq!(fs::read_to_string("log")?, "start\nstop\n");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(std::fs::OpenOptions);

impl OpenOptions {
    /// Options without any access.
    #[allow(clippy::new_without_default)]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions(std::fs::OpenOptions::new())
    }

    /// Sets read access.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read(read);
        self
    }

    /// Sets write access.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write(write);
        self
    }

    /// Sets append mode: each write goes to the current end of the file.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append(append);
        self
    }

    /// Sets whether the file is truncated.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate(truncate);
        self
    }

    /// Sets whether the file is created if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create(create);
        self
    }

    /// Sets whether the file must be created, and must not exist.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new(create_new);
        self
    }

    /// Opens the file. Blocks the microprocess and its kernel thread until the call returns, for a
    /// FIFO until its other end is opened; other microprocesses continue.
    ///
    /// # Errors
    /// As open(2); `InvalidInput` for contradictory options.
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
