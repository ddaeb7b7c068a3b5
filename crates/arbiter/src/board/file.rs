//! The board's file: made, checked and mapped.
//!
//! Only its owner may write it, so a process that can write nonsense there could also signal or
//! trace its owner's processes: a board keeps mistakes and crashes of one program from the others,
//! and is no border between users. For the same reason it does not guard against its file being cut
//! short, by which every process that then touches it would be ended by SIGBUS; that there be no
//! such end because the file system is full, all of it is allocated when it is made.

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
use crate::rules::feedback::Rule;

/// Nobody makes a board for longer, unless it is stopped just there.
const PATIENCE: Duration = Duration::from_secs(1);
/// Modes by which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A board, open and mapped.
#[derive(Debug)]
pub struct Board {
    map: Map,
    pub(crate) locks: Locks,
    path: PathBuf,
}

impl Board {
    /// The board at `path`, which is made if there is none.
    ///
    /// Blocks its kernel thread while another process makes the board, for one second at most.
    ///
    /// # Errors
    /// [`Error`]: what is there is a symbolic link, another user's, writable by others, no file, of
    /// another size, version or content; there is no room; somebody keeps it locked. Nothing is
    /// then changed.
    pub fn open(path: &Path) -> Result<Board, Error> {
        let file = opened(path, File::options().read(true).write(true).create(true).mode(0o600))?;
        let fd = OwnedFd::from(file);
        if size(path, &fd)? != SIZE as u64 || !is_board(path, &fd)? {
            make(path, &fd)?;
        }
        let map = Map::new(&fd, true).map_err(Error::io(path))?;
        Ok(Board { map, locks: Locks::new(fd), path: path.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rule of feedback for *all* address spaces at this board, from now on and as long as its
    /// file is there; None: none.
    pub fn set_feedback(&self, rule: Option<Rule>) {
        self.layout().header.feedback.store(rule.map_or(0, Rule::packed), Ordering::Relaxed);
    }

    /// See [`set_feedback`](Board::set_feedback).
    #[must_use]
    pub fn feedback(&self) -> Option<Rule> {
        Rule::unpacked(self.layout().header.feedback.load(Ordering::Relaxed))
    }

    /// Zeroes the canary, which a process that has ended may have overwritten.
    pub(crate) fn clear_canary(&self) {
        self.locks.with_file(|file| corruption::clear_canary(file));
    }

    #[inline]
    pub(crate) fn layout(&self) -> &BoardLayout {
        self.map.layout()
    }

    /// In a fork's child: the board becomes an empty one of its own, at the same place, where it is
    /// alone. Safe in a signal handler.
    pub fn forget_in_child(&self) {
        self.map.forget();
        self.locks.forget();
    }
}

/// The file at `path`, which is as a board has to be from outside.
pub(crate) fn opened(path: &Path, how: &mut std::fs::OpenOptions) -> Result<File, Error> {
    let untrusted = |what: &str| Error::untrusted(path, what);
    // O_NONBLOCK: opening a planted pipe must not wait.
    let file = how
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => untrusted("it is a symbolic link"),
            Some(libc::EISDIR | libc::ENXIO) => untrusted("it is no file"),
            Some(libc::EACCES) => untrusted("it is another user's, or of a wrong mode"),
            _ => Error::io(path)(e),
        })?;
    let stat = file.metadata().map_err(Error::io(path))?;
    if !stat.is_file() {
        return Err(untrusted("it is no file"));
    }
    // SAFETY: no arguments; cannot fail.
    let me = unsafe { libc::geteuid() };
    if stat.uid() != me {
        return Err(Error::untrusted(
            path,
            format!("it belongs to user {} and not to user {me}", stat.uid()),
        ));
    }
    if stat.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(untrusted("it can be written by others than its owner"));
    }
    Ok(file)
}

fn size(path: &Path, fd: &OwnedFd) -> Result<u64, Error> {
    Ok(rustix::fs::fstat(fd).map_err(|e| Error::io(path)(e.into()))?.st_size as u64)
}

/// False: it is empty, or its maker did not finish.
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
        return Err(Error::untrusted(path, "it is no board"));
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

/// Makes the board, unless another process does so first. Its magic number comes last: what has
/// none is not finished.
fn make(path: &Path, fd: &OwnedFd) -> Result<(), Error> {
    let begun = Instant::now();
    while !locks::try_lock_file(fd).map_err(Error::io(path))? {
        if begun.elapsed() > PATIENCE {
            return Err(Error::Busy(path.to_owned()));
        }
        // Not std's, which never ends where signals come faster than the kernel's timer slack
        // (nanosleep(2)).
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
    // SAFETY: a live descriptor. It returns the error, and does not set errno.
    let error = unsafe { libc::posix_fallocate(fd.as_raw_fd(), 0, SIZE as i64) };
    if error != 0 {
        // So that the next one finds it empty again, and not half allocated.
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

/// The file, mapped and shared, until it is dropped.
#[derive(Debug)]
pub(crate) struct Map(NonNull<BoardLayout>);

// SAFETY: all that it leads to are atomic words.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// The file is at least [`SIZE`] bytes long.
    pub(crate) fn new(fd: &OwnedFd, writable: bool) -> std::io::Result<Map> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
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
    pub(crate) fn layout(&self) -> &BoardLayout {
        // SAFETY: mapped for as long as self lives, page-aligned, of this size; every bit pattern
        // of it is valid, and others change it through atomic words only, or, where they corrupt
        // it, in ways that no access here takes for anything but a value.
        unsafe { self.0.as_ref() }
    }

    /// Puts empty memory of this process's own in its place.
    fn forget(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: over our own mapping, which stays readable and writable at the same address:
        // zeroes are valid there.
        unsafe {
            libc::mmap(
                self.0.as_ptr().cast(),
                SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody borrows any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

impl Board {
    /// How many holders were overridden since the board was made, and the process of the last one.
    #[must_use]
    pub fn overridden(&self) -> (u32, u32) {
        let word = self.layout().header.overridden.load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32)
    }
}
