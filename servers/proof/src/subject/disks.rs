//! Disks for stores under test: in memory, recording, and failing.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use kumihimo_store::Disk;

/// An image in memory; clones share the disk. An access beyond the end fails and is counted,
/// because a correct store never makes one.
#[derive(Clone, Debug)]
pub struct Memory {
    bytes: Arc<RwLock<Vec<u8>>>,
    beyond: Arc<AtomicU64>,
    accesses: Arc<AtomicU64>,
}

impl Memory {
    /// Creates a disk with the contents of `image`.
    #[must_use]
    pub fn new(image: Vec<u8>) -> Memory {
        Memory {
            bytes: Arc::new(RwLock::new(image)),
            beyond: Arc::default(),
            accesses: Arc::default(),
        }
    }

    /// Copy of the current contents.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls `what` with the current contents.
    pub fn with<R>(&self, what: impl FnOnce(&[u8]) -> R) -> R {
        what(&self.bytes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of accesses beyond the end.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        self.beyond.load(Relaxed)
    }

    /// Number of reads and writes.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Relaxed)
    }

    fn range(
        &self,
        offset: u64,
        length: usize,
        size: usize,
        kind: ErrorKind,
    ) -> io::Result<std::ops::Range<usize>> {
        self.accesses.fetch_add(1, Relaxed);
        let start = usize::try_from(offset).ok();
        let range = start
            .and_then(|start| Some(start..start.checked_add(length)?))
            .filter(|range| range.end <= size);
        range.ok_or_else(|| {
            self.beyond.fetch_add(1, Relaxed);
            io::Error::new(kind, format!("access to {length} bytes at {offset}, disk size {size}"))
        })
    }
}

impl Disk for Memory {
    fn size(&self) -> u64 {
        self.with(|bytes| bytes.len() as u64)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.with(|bytes| {
            let range = self.range(offset, into.len(), bytes.len(), ErrorKind::UnexpectedEof)?;
            into.copy_from_slice(&bytes[range]);
            Ok(())
        })
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let range = self.range(offset, from.len(), bytes.len(), ErrorKind::StorageFull)?;
        bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A change of a disk.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write: offset and data.
    Write(u64, Arc<[u8]>),
    /// A flush: all earlier writes are on the medium.
    Flush,
}

/// A disk that records writes and flushes in order; clones share the disk.
#[derive(Clone, Debug)]
pub struct Recorder<D> {
    disk: D,
    record: Arc<Mutex<Vec<Event>>>,
}

impl<D: Disk> Recorder<D> {
    /// Wraps another disk.
    #[must_use]
    pub fn new(disk: D) -> Recorder<D> {
        Recorder { disk, record: Arc::default() }
    }

    fn record(&self) -> MutexGuard<'_, Vec<Event>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of events so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.record().len()
    }

    /// All events.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.record().clone()
    }
}

impl<D: Disk> Disk for Recorder<D> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        // The record and the disk change under one lock: two concurrent writes to the same place
        // have the same order in both.
        let mut record = self.record();
        record.push(Event::Write(offset, from.into()));
        self.disk.write(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()?;
        self.record().push(Event::Flush);
        Ok(())
    }
}

/// A disk that fails from its nth access on. Reads, writes and flushes are counted.
#[derive(Clone, Debug)]
pub struct Failing<D> {
    disk: D,
    left: Arc<AtomicU64>,
}

impl<D: Disk> Failing<D> {
    /// Wraps another disk. The first `well` accesses succeed.
    #[must_use]
    pub fn new(disk: D, well: u64) -> Failing<D> {
        Failing { disk, left: Arc::new(AtomicU64::new(well)) }
    }

    /// Lets the next `accesses` accesses succeed.
    pub fn well(&self, accesses: u64) {
        self.left.store(accesses, Relaxed);
    }

    /// Returns whether accesses fail now.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    fn access(&self) -> io::Result<&D> {
        match self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Ok(&self.disk),
            Err(_) => Err(io::Error::from_raw_os_error(kumihimo_store::Errno::IO.raw_os_error())),
        }
    }
}

impl<D: Disk> Disk for Failing<D> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.access()?.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.access()?.write(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.access()?.flush()
    }
}
