//! Block access for stores.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Block device, or a file used as a block device. Any number of threads may use it concurrently.
///
/// # Errors
/// As read(2), write(2) and fsync(2). A range beyond the end is an error: `UnexpectedEof` or
/// `ENOSPC`.
#[allow(clippy::missing_errors_doc, reason = "stated once, above")]
pub trait Disk: Send + Sync + 'static {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Fills `into` from `offset`.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `from` at `offset`. The data may stay in a volatile cache, and writes may
    /// reach the medium in any order, until the next `flush`.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Waits until all earlier writes are on the medium.
    fn flush(&self) -> io::Result<()>;
}

/// Opens an image or a block device exclusively. The kernel refuses a block device that is mounted
/// (`O_EXCL`); an image is locked against a second server (flock(2)).
///
/// # Errors
/// As open(2). `ResourceBusy`: another process uses it. `InvalidInput`: neither a regular file nor
/// a block device. `EROFS`: the device is read-only.
pub fn open_disk(path: &Path, writable: bool) -> io::Result<FileDisk> {
    let mode = OFlags::CLOEXEC | if writable { OFlags::RDWR } else { OFlags::RDONLY };
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "neither a regular file nor a block device",
        ));
    }
    if kind.is_block_device() && writable && is_read_only(path)? {
        // Opening a read-only device for writing succeeds, but writes fail.
        return Err(Errno::ROFS.into());
    }
    // Without O_CREAT, O_EXCL has a defined meaning for block devices only: open(2).
    let mode = if kind.is_block_device() { mode | OFlags::EXCL } else { mode };
    let file = File::from(rustix::fs::open(path, mode, Mode::empty())?);
    let operation = if writable {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match rustix::fs::flock(&file, operation) {
        Err(Errno::WOULDBLOCK) => {
            return Err(io::Error::new(ErrorKind::ResourceBusy, "another server has it mounted"));
        }
        other => other?,
    }
    let size = (&file).seek(SeekFrom::End(0))?;
    Ok(FileDisk::new(file, size))
}

/// Returns whether a block device is read-only, according to sysfs.
fn is_read_only(path: &Path) -> io::Result<bool> {
    let device = std::fs::metadata(path)?.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let said = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    Ok(said.is_ok_and(|said| said.trim() == "1"))
}

/// Disk in a file or block device, accessed by plain system calls, which block the kernel thread.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    size: u64,
}

impl FileDisk {
    /// Creates a disk from an open file of `size` bytes.
    #[must_use]
    pub fn new(file: File, size: u64) -> FileDisk {
        FileDisk { file, size }
    }

    /// Returns the open file, for another kind of access.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }
}

impl Disk for Box<dyn Disk> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        (**self).write(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Number of bytes for which a [`Delayed`] disk waits once.
pub const DELAYED: usize = 4096;

/// Disk with a delay for every [`DELAYED`] bytes or part of them, so that an image in memory
/// behaves like a device. The organisation determines how the caller waits.
#[derive(Debug)]
pub struct Delayed<D> {
    disk: D,
    delay: Duration,
    wait: fn(Duration),
}

impl<D> Delayed<D> {
    /// Creates a disk that calls `wait` before each read and write, with `delay` for each block.
    #[must_use]
    pub fn new(disk: D, delay: Duration, wait: fn(Duration)) -> Delayed<D> {
        Delayed { disk, delay, wait }
    }

    fn take_time(&self, bytes: usize) {
        let blocks = u32::try_from(bytes.div_ceil(DELAYED)).unwrap_or(u32::MAX);
        (self.wait)(self.delay.saturating_mul(blocks));
    }
}

impl<D: Disk> Disk for Delayed<D> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.take_time(into.len());
        self.disk.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.take_time(from.len());
        self.disk.write(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }
}

#[cfg(test)]
mod tests;
