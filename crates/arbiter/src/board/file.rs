//! Creates, checks and maps the board's file.
//!
//! Only the owner of the board can write to it, and such a process could also signal or trace the
//! owner's other processes. A board therefore protects programs from mistakes and crashes of other
//! programs, but is no security boundary between users. After a truncation of the file every access
//! raises SIGBUS; see [`super::truncation`]. All blocks are allocated at creation, so that a full
//! file system cannot cause SIGBUS.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::thread::Timespec;

use super::error::Error;
use crate::board::corruption;
use crate::board::layout::{BoardLayout, MAGIC, SIZE, VERSION};
use crate::board::locks::{self, Locks};
use crate::board::truncation::{self, Mapping};
use crate::rules::feedback::Rule;

/// Maximum time to wait while another process creates the board.
const PATIENCE: Duration = Duration::from_secs(1);
/// Mode bits that let other users write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Open and mapped board.
#[derive(Debug)]
pub struct Board {
    map: Map,
    pub(crate) locks: Locks,
    path: PathBuf,
    mapping: Option<&'static Mapping>,
}

impl Board {
    /// Opens the board at `path`, creating it if it does not exist.
    ///
    /// Blocks the kernel thread while another process creates the board, for at most one second.
    ///
    /// # Errors
    /// Returns an [`Error`] if the file is not a trustworthy board of this version, if there is no
    /// space, or if another process holds its lock too long. The file is then unchanged.
    pub fn open(path: &Path) -> Result<Board, Error> {
        let file = opened(path, File::options().read(true).write(true).create(true).mode(0o600))?;
        let fd = OwnedFd::from(file);
        if size(path, &fd)? != SIZE as u64 || !is_board(path, &fd)? {
            make(path, &fd)?;
        }
        let map = Map::new(&fd).map_err(Error::io(path))?;
        let locks = Locks::new(fd);
        let mapping = locks.file().map(|file| Mapping::register(map.address(), file));
        Ok(Board { map, locks, path: path.to_owned(), mapping })
    }

    /// Returns how often this process repaired the board after a truncation, and whether it has
    /// given up and continues without the others.
    #[must_use]
    pub fn truncations(&self) -> (u32, bool) {
        self.mapping.map_or((0, false), Mapping::history)
    }

    /// Returns the path of the board.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the feedback rule for *all* address spaces at this board, until it is changed or the
    /// file is removed. `None` disables feedback.
    pub fn set_feedback(&self, rule: Option<Rule>) {
        self.layout().header.feedback.store(rule.map_or(0, Rule::packed), Ordering::Relaxed);
    }

    /// Returns the feedback rule; see [`set_feedback`](Board::set_feedback).
    #[must_use]
    pub fn feedback(&self) -> Option<Rule> {
        Rule::unpacked(self.layout().header.feedback.load(Ordering::Relaxed))
    }

    /// Zeroes the canary, in case that a process that has ended wrote to it.
    pub(crate) fn clear_canary(&self) {
        self.locks.with_file(|file| corruption::clear_canary(file));
    }

    #[inline]
    pub(crate) fn layout(&self) -> &BoardLayout {
        self.map.layout()
    }

    /// In the child of a fork: replaces the board by an empty private board at the same address.
    /// Async-signal-safe.
    pub fn forget_in_child(&self) {
        self.forget_mapping();
        truncation::replace_by_private(self.map.address());
        self.locks.forget();
    }

    fn forget_mapping(&self) {
        if let Some(mapping) = self.mapping {
            mapping.forget();
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.forget_mapping();
    }
}

/// Opens the file at `path` and checks its type, owner and mode.
pub(crate) fn opened(path: &Path, how: &mut std::fs::OpenOptions) -> Result<File, Error> {
    let untrusted = |what: &str| Error::untrusted(path, what);
    // O_NONBLOCK: opening a planted pipe must not wait.
    let file = how
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => untrusted("it is a symbolic link"),
            Some(libc::EISDIR | libc::ENXIO) => untrusted("it is not a regular file"),
            Some(libc::EACCES) => untrusted("it belongs to another user, or has a wrong mode"),
            _ => Error::io(path)(e),
        })?;
    let stat = file.metadata().map_err(Error::io(path))?;
    if !stat.is_file() {
        return Err(untrusted("it is not a regular file"));
    }
    // SAFETY: no arguments; cannot fail.
    let me = unsafe { libc::geteuid() };
    if stat.uid() != me {
        return Err(Error::untrusted(
            path,
            format!("it belongs to user {}, not to user {me}", stat.uid()),
        ));
    }
    if stat.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(untrusted("other users can write to it"));
    }
    Ok(file)
}

fn size(path: &Path, fd: &OwnedFd) -> Result<u64, Error> {
    Ok(rustix::fs::fstat(fd).map_err(|e| Error::io(path)(e.into()))?.st_size as u64)
}

/// Returns whether the file is a complete board. False if it is empty, or if its creation did not
/// finish.
pub(crate) fn is_board(path: &Path, fd: &OwnedFd) -> Result<bool, Error> {
    let length = size(path, fd)?;
    if length == 0 {
        return Ok(false);
    }
    let mut head = [0; 16];
    let read = rustix::io::pread(fd, &mut head, 0).map_err(|e| Error::io(path)(e.into()))?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let magic = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
    if magic == 0 && length == SIZE as u64 {
        return Ok(false);
    }
    if read < head.len() || magic != MAGIC {
        return Err(Error::untrusted(path, "it is not a board"));
    }
    if word(8) != VERSION {
        return Err(Error::Version { path: path.to_owned(), found: word(8), known: VERSION });
    }
    if word(12) != SIZE as u32 || length != SIZE as u64 {
        let what =
            format!("it is {length} bytes long, and a board of version {VERSION} has {SIZE}");
        return Err(Error::untrusted(path, what));
    }
    Ok(true)
}

/// Creates the board, unless another process does so first. The magic number is written last, so a
/// file without it is not finished.
fn make(path: &Path, fd: &OwnedFd) -> Result<(), Error> {
    let begun = Instant::now();
    while !locks::try_lock_file(fd).map_err(Error::io(path))? {
        if begun.elapsed() > PATIENCE {
            return Err(Error::Busy(path.to_owned()));
        }
        // Not `std::thread::sleep`, which retries after each signal and never ends if signals
        // arrive faster than the kernel's timer slack (nanosleep(2)).
        let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: 200_000 });
    }
    let made = made(path, fd);
    locks::unlock_file(fd);
    made
}

fn made(path: &Path, fd: &OwnedFd) -> Result<(), Error> {
    if is_board(path, fd)? {
        return Ok(());
    }
    // SAFETY: a live descriptor. posix_fallocate(3) returns the error and does not set errno.
    let error = unsafe { libc::posix_fallocate(fd.as_raw_fd(), 0, SIZE as i64) };
    if error != 0 {
        // Truncated, so that the next process finds an empty file and not a partly allocated one.
        let _ = rustix::fs::ftruncate(fd, 0);
        return Err(Error::io(path)(std::io::Error::from_raw_os_error(error)));
    }
    let mut rest = [0; 8];
    rest[..4].copy_from_slice(&VERSION.to_le_bytes());
    rest[4..].copy_from_slice(&(SIZE as u32).to_le_bytes());
    for (bytes, at) in [(rest, 8), (MAGIC.to_le_bytes(), 0)] {
        rustix::io::pwrite(fd, &bytes, at).map_err(|e| Error::io(path)(e.into()))?;
    }
    Ok(())
}

/// Shared mapping of the file; unmapped on drop.
#[derive(Debug)]
struct Map(NonNull<BoardLayout>);

// SAFETY: the mapping consists of atomic words only.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the file, which must be at least [`SIZE`] bytes long.
    fn new(fd: &OwnedFd) -> std::io::Result<Map> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a live descriptor, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), SIZE, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        match NonNull::new(at.cast::<BoardLayout>()) {
            Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(Map(at)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    #[inline]
    fn layout(&self) -> &BoardLayout {
        // SAFETY: mapped while `self` lives, page-aligned and of this size. Every bit pattern is
        // valid. Other processes change the memory through atomic words; a corrupting process can
        // change only values, which every reader here checks.
        unsafe { self.0.as_ref() }
    }

    fn address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is no longer borrowed.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

impl Board {
    /// Returns how many holders were overridden since the board was created, and the pid of the
    /// last.
    #[must_use]
    pub fn overridden(&self) -> (u32, u32) {
        let word = self.layout().header.overridden.load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32)
    }
}
