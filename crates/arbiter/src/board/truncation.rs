//! Recovery of a board whose file was truncated while it is mapped.
//!
//! Any process of the user can truncate the file. Each access to a page that is gone raises SIGBUS,
//! whose handler calls [`recover`]. It allocates the file's blocks again and fills in the least
//! that loses no wake-up. Members write the rest at their next count, so priorities between address
//! spaces do not apply for up to a second. Where the file cannot be repaired, the mapping is
//! replaced by private memory: the process then continues alone.
//!
//! The repair writes through the descriptor and never through the mapping. A page may vanish again
//! at any time, and the kernel ends a process whose handler for SIGBUS raises SIGBUS.

use std::mem::offset_of;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use crate::board::layout::{BoardLayout, Header, MAGIC, Record, SIZE, VERSION};
use crate::row::Cell;
use crate::slot::{CELLS, ROWS};

/// Repairs of one mapping, after which the process continues alone: a process that truncates the
/// board over and over delays the others no further.
const MOST_REPAIRS: u32 = 100;
/// Address of an entry that is being filled in.
const TAKEN: usize = 1;

/// A mapped board. Entries are never freed, because a signal handler may read them at any time; the
/// entry of a mapping that has ended is used again.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Address of the mapping; 0 if the entry is free.
    at: AtomicUsize,
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    repairs: AtomicU32,
    is_private: AtomicBool,
    next: AtomicPtr<Mapping>,
}

static FIRST: AtomicPtr<Mapping> = AtomicPtr::new(ptr::null_mut());

impl Mapping {
    /// Registers the mapping of `file` at address `at`.
    pub(crate) fn register(at: usize, file: OpenFile) -> &'static Mapping {
        let take = |entry: &&Mapping| {
            entry.at.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let entry = entries().find(take).unwrap_or_else(new_entry);
        entry.fd.store(file.fd, Ordering::Relaxed);
        entry.device.store(file.device, Ordering::Relaxed);
        entry.inode.store(file.inode, Ordering::Relaxed);
        entry.repairs.store(0, Ordering::Relaxed);
        entry.is_private.store(false, Ordering::Relaxed);
        entry.at.store(at, Ordering::Release);
        entry
    }

    /// Frees the entry. Called before the memory is unmapped. Async-signal-safe.
    pub(crate) fn forget(&self) {
        self.at.store(0, Ordering::Release);
    }

    /// Returns how often the board was repaired, and whether it was replaced by private memory.
    pub(crate) fn history(&self) -> (u32, bool) {
        let repairs = self.repairs.load(Ordering::Relaxed).min(MOST_REPAIRS);
        (repairs, self.is_private.load(Ordering::Relaxed))
    }

    /// Allocates the file's blocks again, and fills in what keeps wake-ups from being lost. Returns
    /// false if that fails. Async-signal-safe.
    fn repair(&self, at: usize) -> bool {
        let fd = self.fd.load(Ordering::Relaxed);
        let file = OpenFile {
            fd,
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
        };
        // Beyond RLIMIT_FSIZE, the kernel sends SIGXFSZ instead of an error.
        if !file.is_still_open()
            || !may_have_size()
            || self.repairs.fetch_add(1, Ordering::Relaxed) >= MOST_REPAIRS
            || !allocate(fd)
        {
            return false;
        }
        let cells = offset_of!(BoardLayout, records) + offset_of!(Record, cells);
        let filled = (0..ROWS).all(|row| write(fd, &ASLEEP.0, cells + row * size_of::<Record>()))
            && write(fd, &header(), 0);
        wake_all(at);
        filled
    }

    /// Replaces the mapping by private memory with the same contents as a repaired board. Returns
    /// false if there is no memory. Async-signal-safe.
    fn leave(&self, at: usize) -> bool {
        self.is_private.store(true, Ordering::Relaxed);
        if !replace_by_private(at) {
            return false;
        }
        let cells = at + offset_of!(BoardLayout, records) + offset_of!(Record, cells);
        // SAFETY: the private memory has the board's layout. It is not shared with other processes,
        // and other threads access it through atomic words only, for which each value is valid.
        unsafe {
            for row in 0..ROWS {
                let to = (cells + row * size_of::<Record>()) as *mut u8;
                ptr::copy_nonoverlapping(ASLEEP.0.as_ptr(), to, ASLEEP.0.len());
            }
            ptr::copy_nonoverlapping(header().as_ptr(), at as *mut u8, HEADER);
        }
        wake_all(at);
        true
    }
}

/// Repairs the board that is mapped at `address`, after a SIGBUS there. Returns false if no board
/// is mapped there; the fault then has another cause. The access is to be repeated otherwise.
/// Async-signal-safe.
#[must_use]
pub fn recover(address: usize) -> bool {
    let found = entries().find_map(|entry| {
        let at = entry.at.load(Ordering::Acquire);
        (at > TAKEN && (at..at + SIZE).contains(&address)).then_some((entry, at))
    });
    found.is_some_and(|(entry, at)| entry.repair(at) || entry.leave(at))
}

/// Replaces the mapping of a board by zeroed private memory at the same address. Returns false if
/// there is no memory. Async-signal-safe.
pub(crate) fn replace_by_private(at: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: MAP_FIXED replaces the mapping of a board, which the caller owns and which stays
    // readable and writable at the same address. Zeroes are valid there.
    let new = unsafe { libc::mmap(at as *mut libc::c_void, SIZE, protection, flags, -1, 0) };
    new != libc::MAP_FAILED
}

/// A descriptor, and the file that it referred to when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub(crate) fd: RawFd,
    device: u64,
    inode: u64,
}

impl OpenFile {
    /// Records which file `fd` refers to. `None` if it is not open.
    pub(crate) fn of(fd: RawFd) -> Option<OpenFile> {
        // SAFETY: all zeroes are a valid struct stat, and the pointer is to it.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::fstat(fd, &raw mut stat) == 0).then_some(OpenFile {
                fd,
                device: stat.st_dev,
                inode: stat.st_ino,
            })
        }
    }

    /// Returns whether the descriptor still refers to that file. A program that closes all
    /// descriptors may have opened another file under the same number.
    pub(crate) fn is_still_open(&self) -> bool {
        OpenFile::of(self.fd) == Some(*self)
    }
}

fn new_entry() -> &'static Mapping {
    let entry: &'static Mapping = Box::leak(Box::new(Mapping {
        at: AtomicUsize::new(TAKEN),
        fd: AtomicI32::new(-1),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        repairs: AtomicU32::new(0),
        is_private: AtomicBool::new(false),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let link = |first| {
        entry.next.store(first, Ordering::Relaxed);
        Some(ptr::from_ref(entry).cast_mut())
    };
    let _ = FIRST.fetch_update(Ordering::AcqRel, Ordering::Acquire, link);
    entry
}

fn entries() -> impl Iterator<Item = &'static Mapping> {
    // SAFETY: null, or an entry, which is never freed.
    let at = |entry: *mut Mapping| unsafe { entry.cast_const().as_ref() };
    std::iter::successors(at(FIRST.load(Ordering::Acquire)), move |entry| {
        at(entry.next.load(Ordering::Acquire))
    })
}

/// The cells of a row whose VPs all sleep on descriptors.
///
/// A VP that sleeps on descriptors is woken by a write to one, which also wakes a VP that is about
/// to sleep. A VP that sleeps on its cell's futex is woken after the repair. A VP that runs sets
/// its own state when it next sleeps.
#[repr(C, align(8))]
struct Asleep([u8; CELLS * size_of::<Cell>()]);

static ASLEEP: Asleep = {
    let mut bytes = [0; CELLS * size_of::<Cell>()];
    let word = Cell::ASLEEP_ON_DESCRIPTORS.to_ne_bytes();
    let mut cell = 0;
    while cell < CELLS {
        let mut byte = 0;
        while byte < word.len() {
            bytes[cell * size_of::<Cell>() + Cell::WORD + byte] = word[byte];
            byte += 1;
        }
        cell += 1;
    }
    Asleep(bytes)
};

/// Length of the part of the header that a repair writes.
const HEADER: usize = offset_of!(Header, living) + 8;

/// The identity of a board, and a number of members that makes each of them count again.
fn header() -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
    put(offset_of!(Header, magic), &MAGIC.to_ne_bytes());
    put(offset_of!(Header, version), &VERSION.to_ne_bytes());
    put(offset_of!(Header, size), &(SIZE as u32).to_ne_bytes());
    put(offset_of!(Header, living), &2u64.to_ne_bytes());
    bytes
}

fn may_have_size() -> bool {
    // SAFETY: all zeroes are a valid struct rlimit, and the pointer is to it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 && limit.rlim_cur >= SIZE as u64
    }
}

/// Grows the file to its size, with all blocks. Returns false on an error.
fn allocate(fd: RawFd) -> bool {
    loop {
        // SAFETY: integer arguments. fallocate(2) keeps what the file contains.
        if unsafe { libc::fallocate(fd, 0, 0, SIZE as i64) } == 0 {
            return true;
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return false;
        }
    }
}

fn write(fd: RawFd, bytes: &[u8], at: usize) -> bool {
    // SAFETY: a live buffer of this length.
    let written = unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), at as i64) };
    written == bytes.len() as isize
}

/// Wakes all VPs that sleep on a futex of the board.
fn wake_all(at: usize) {
    for row in 0..ROWS {
        let cells = at
            + offset_of!(BoardLayout, records)
            + row * size_of::<Record>()
            + offset_of!(Record, cells);
        for cell in 0..CELLS {
            let word = cells + cell * size_of::<Cell>() + Cell::WORD;
            // SAFETY: the kernel checks the address, and reports an error for a page that is gone.
            unsafe {
                kumihimo_arch::call!(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX, 0, 0, 0);
            }
        }
    }
}
