//! Block access: what a store on blocks stands on.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// A block device, or a file used as one. Any number of threads may use it at once.
///
/// # Errors
/// As read(2), write(2) and fsync(2). A range that goes beyond the end is an error:
/// `UnexpectedEof`, `ENOSPC`.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait Disk: Send + Sync + 'static {
    /// Bytes.
    fn size(&self) -> u64;

    /// Fills `into` from `offset`.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `from` at `offset`. It may be in a volatile cache afterwards, and writes may
    /// reach the medium in any order, until the next `flush`.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// All that was written before is on the medium when this returns.
    fn flush(&self) -> io::Result<()>;
}

/// Opens an image or a block device, exclusively: the kernel refuses a block device that is mounted
/// (`O_EXCL`), and an image is locked against a second server (flock(2)).
///
/// # Errors
/// As open(2). `ResourceBusy`: someone else has it. `InvalidInput`: neither a regular file nor a
/// block device. `EROFS`: the device cannot be written.
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
        // Opening one for writing succeeds, and writing does not.
        return Err(Errno::ROFS.into());
    }
    // Of a block device only, O_EXCL has a meaning without O_CREAT: open(2).
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

/// What the kernel says of a block device.
fn is_read_only(path: &Path) -> io::Result<bool> {
    let device = std::fs::metadata(path)?.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let said = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    Ok(said.is_ok_and(|said| said.trim() == "1"))
}

/// A disk in a file or block device, by plain system calls: a wait for the medium is one in the
/// kernel.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    size: u64,
}

impl FileDisk {
    /// Of an open file that has `size` bytes.
    #[must_use]
    pub fn new(file: File, size: u64) -> FileDisk {
        FileDisk { file, size }
    }

    /// The open file alone, for access in another way.
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

/// Bytes for which a [`Delayed`] disk takes its time once.
pub const DELAYED: usize = 4096;

/// A disk that takes a while for every [`DELAYED`] bytes, or a part of them: an image in memory
/// behaves like a device. How the caller waits is its organisation's affair.
#[derive(Debug)]
pub struct Delayed<D> {
    disk: D,
    delay: Duration,
    wait: fn(Duration),
}

impl<D> Delayed<D> {
    /// `wait` is called before each read and write, with `delay` for each of their blocks.
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
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    fn image(name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path =
            std::env::temp_dir().join(format!("kumihimo-disk-{name}-{}", std::process::id()));
        File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("a file");
        path
    }

    #[test]
    fn what_is_written_is_read_and_the_end_is_an_error() {
        let path = image("ends", &[1; 8192]);
        let disk = open_disk(&path, true).expect("an image");
        assert_eq!(disk.size(), 8192);
        disk.write(4000, &[7; 100]).expect("a write");
        disk.flush().expect("a flush");
        let mut read = [0; 102];
        disk.read(3999, &mut read).expect("a read");
        assert_eq!((read[0], read[1], read[100], read[101]), (1, 7, 7, 1));
        assert_eq!(
            disk.read(8191, &mut [0; 2]).expect_err("the end").kind(),
            ErrorKind::UnexpectedEof
        );
        std::fs::remove_file(path).expect("it was there");
    }

    #[test]
    fn one_server_at_a_time_writes() {
        let path = image("locked", &[0; 1024]);
        let first = open_disk(&path, true).expect("an image");
        assert_eq!(
            open_disk(&path, true).expect_err("it is taken").kind(),
            ErrorKind::ResourceBusy
        );
        assert_eq!(
            open_disk(&path, false).expect_err("it is taken").kind(),
            ErrorKind::ResourceBusy
        );
        drop(first);
        let _reader = open_disk(&path, false).expect("free again");
        open_disk(&path, false).expect("several may read");
        assert_eq!(open_disk(&path, true).expect_err("it is read").kind(), ErrorKind::ResourceBusy);
        std::fs::remove_file(path).expect("it was there");
    }

    #[test]
    fn what_has_no_blocks_is_refused() {
        assert_eq!(
            open_disk(&std::env::temp_dir(), false).expect_err("a directory").kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            open_disk(Path::new("/dev/null"), false).expect_err("a device").kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            open_disk(Path::new("/no/such"), false).expect_err("nothing").kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn each_block_is_delayed_in_the_way_that_is_asked_for() {
        static WAITED: AtomicU64 = AtomicU64::new(0);
        let path = image("delayed", &[0; 10_000]);
        let wait = |time: Duration| {
            WAITED.fetch_add(time.as_secs(), Relaxed);
        };
        let disk = Delayed::new(
            open_disk(&path, true).expect("an image"),
            Duration::from_secs(1000),
            wait,
        );
        disk.read(0, &mut [0; 512]).expect("a read");
        disk.write(0, &[0; 4096]).expect("a write");
        disk.read(0, &mut [0; 4097]).expect("a read");
        assert_eq!((WAITED.load(Relaxed), disk.size()), (4000, 10_000));
        std::fs::remove_file(path).expect("it was there");
    }
}
