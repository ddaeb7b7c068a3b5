//! Memory that two address spaces share: a sealed memfd, mapped. The seals keep its size, so no
//! peer can take pages away below us (SIGBUS).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::{Error, ErrorKind};

/// Most bytes of one mapping. A peer's file has the size that it states, which may be larger than
/// is acceptable.
pub(crate) const MOST_BYTES: usize = 1 << 30;
/// The file system of a memfd of ordinary pages. Huge pages can run out while they are mapped
/// (SIGBUS again).
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Seals that fix the size, and the seals.
pub(crate) const SIZE_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// When the pages of a mapping are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Each when it is touched first.
    AsTouched,
    /// Now.
    Now,
}

/// The access through a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A shared mapping. Others may change its bytes at any time, unless the file is sealed against
/// writing: so only atomics are made of it.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to no kernel thread; an access through its address is the affair of its
// author.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory, all zero, and its descriptor. `name` is seen in `/proc/PID/maps`.
    ///
    /// # Errors
    /// `Exhausted`: no memory, address space or descriptors, or the limit of file sizes. `Io`:
    /// memfd_create(2) is refused.
    pub(crate) fn create(
        name: &str,
        bytes: usize,
        pages: Pages,
    ) -> Result<(Memory, OwnedFd), Error> {
        let fd = new_file(name, bytes)?;
        // Nothing that a mapping could stand against.
        seal(fd.as_fd(), SIZE_SEALS)?;
        let memory = Memory::of(fd.as_fd(), bytes, Access::Write, pages)?;
        Ok((memory, fd))
    }

    /// The memory behind a peer's descriptor, to be written too. Only pages that are touched cost
    /// memory.
    ///
    /// # Errors
    /// `Malformed`: not a memfd, not sealed as it has to be, of another size, or larger than 1 GiB.
    /// `Exhausted`, `Io`: what the operating system says.
    pub(crate) fn map(fd: BorrowedFd<'_>, bytes: usize) -> Result<Memory, Error> {
        check(fd, bytes, SIZE_SEALS)?;
        Memory::of(fd, bytes, Access::Write, Pages::AsTouched)
    }

    /// Maps `len` bytes of a file whose size is final.
    pub(crate) fn of(
        fd: BorrowedFd<'_>,
        len: usize,
        access: Access,
        pages: Pages,
    ) -> Result<Memory, Error> {
        if len == 0 {
            // mmap(2) has no empty mappings.
            return Ok(Memory { start: NonNull::dangling(), len });
        }
        let protection =
            libc::PROT_READ | if access == Access::Write { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        let failed = at == libc::MAP_FAILED;
        let start = NonNull::new(at.cast::<u8>()).filter(|_| !failed);
        let Some(start) = start else {
            return Err(match last_errno() {
                Errno::PERM | Errno::ACCESS => malformed_memory("it cannot be mapped for writing"),
                errno => system_error("mmap", len, errno),
            });
        };
        let memory = Memory { start, len };
        if pages == Pages::Now || pages_may_be_refused() {
            memory.populate(access)?;
        }
        Ok(memory)
    }

    /// Has all pages there. Instead of a signal when they are touched, this has an error if there
    /// is no memory for them.
    fn populate(&self, access: Access) -> Result<(), Error> {
        let advice = if access == Access::Write {
            libc::MADV_POPULATE_WRITE
        } else {
            libc::MADV_POPULATE_READ
        };
        // SAFETY: our mapping, whole; the advice changes none of its bytes.
        if unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, advice) } == 0 {
            return Ok(());
        }
        match last_errno() {
            // Before Linux 5.14: they come as they are touched.
            Errno::INVAL => Ok(()),
            // EFAULT: touching would have been a SIGBUS.
            Errno::FAULT => Err(system_error("madvise", self.len, Errno::NOMEM)),
            errno => Err(system_error("madvise", self.len, errno)),
        }
    }

    /// Its first byte; dangling if there is none. Aligned to pages otherwise.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: our mapping, whole; borrows from it borrowed `self`.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// A memfd of this size, without seals against anything but execution.
pub(crate) fn new_file(name: &str, bytes: usize) -> Result<OwnedFd, Error> {
    if bytes > MOST_BYTES {
        return Err(Error::new(
            ErrorKind::Exhausted,
            format!("{bytes} bytes of shared memory: {MOST_BYTES} are the most"),
        ));
    }
    // ftruncate(2) beyond it raises SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| (bytes as u64) > most) {
        let text = format!(
            "{bytes} bytes of shared memory are more than RLIMIT_FSIZE allows: raise it (ulimit -f)"
        );
        return Err(Error::new(ErrorKind::Exhausted, text));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let create = |flags| rustix::fs::memfd_create(name, flags);
    // EINVAL: before Linux 6.3; or the name is too long, and the second attempt says so.
    let fd = match create(flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => create(flags),
        other => other,
    };
    let fd = fd.map_err(|errno| system_error("memfd_create", bytes, errno))?;
    rustix::fs::ftruncate(&fd, bytes as u64)
        .map_err(|errno| system_error("ftruncate", bytes, errno))?;
    Ok(fd)
}

/// Adds seals. `false`: it is to be sealed against writing and still mapped for it, perhaps by a
/// child that was forked meanwhile.
pub(crate) fn seal(fd: BorrowedFd<'_>, seals: SealFlags) -> Result<bool, Error> {
    match rustix::fs::fcntl_add_seals(fd, seals) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        Err(errno) => {
            Err(Error::new(ErrorKind::Io, format!("shared memory cannot be sealed: {errno}")))
        }
    }
}

/// A peer's descriptor is a memfd of just this size and has at least these seals.
pub(crate) fn check(fd: BorrowedFd<'_>, bytes: usize, seals: SealFlags) -> Result<(), Error> {
    if bytes > MOST_BYTES {
        return Err(malformed_memory(&format!(
            "it should have {bytes} bytes, and {MOST_BYTES} are the most"
        )));
    }
    // EINVAL: of a kind that has no seals. Those that have them and are no memfd, files on a tmpfs,
    // have F_SEAL_SEAL alone.
    let found = rustix::fs::fcntl_get_seals(fd).map_err(|_| malformed_memory("it is no memfd"))?;
    if !found.contains(seals) {
        return Err(malformed_memory(&format!("it has the seals {found:?}, not {seals:?}")));
    }
    let system = rustix::fs::fstatfs(fd).map_err(|errno| system_error("fstatfs", bytes, errno))?;
    if system.f_type != TMPFS_MAGIC {
        return Err(malformed_memory("it is not of ordinary pages"));
    }
    // After the seals: now the size stays.
    let size = rustix::fs::fstat(fd).map_err(|errno| system_error("fstat", bytes, errno))?.st_size;
    if size != bytes as i64 {
        return Err(malformed_memory(&format!("it has {size} bytes, not {bytes}")));
    }
    Ok(())
}

#[cold]
fn malformed_memory(what: &str) -> Error {
    Error::new(
        ErrorKind::Malformed,
        format!("the descriptor that the other side passed is not memory to be shared: {what}"),
    )
}

/// The error for a system call that has failed for shared memory.
#[cold]
fn system_error(call: &str, bytes: usize, errno: Errno) -> Error {
    let (kind, todo) = match errno {
        Errno::NOMEM | Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
            (ErrorKind::Exhausted, "free memory, or raise the limits of memory and address space")
        }
        Errno::MFILE | Errno::NFILE => {
            (ErrorKind::Exhausted, "close descriptors, or raise their limit (ulimit -n)")
        }
        Errno::NOSYS | Errno::PERM | Errno::ACCESS => {
            (ErrorKind::Io, "gates need memfd_create(2): allow it in the seccomp filter")
        }
        _ => (ErrorKind::Io, "see its manual page"),
    };
    Error::new(kind, format!("{bytes} bytes of shared memory: {call}: {errno}; {todo}"))
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Whether touching a page may fail for want of unreserved memory: a memfd reserves none, and under
/// strict accounting (vm.overcommit_memory=2) its pages are then refused one by one, by SIGBUS.
/// Read once.
fn pages_may_be_refused() -> bool {
    static STRICT: OnceLock<bool> = OnceLock::new();
    *STRICT.get_or_init(|| {
        fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
    })
}

#[cfg(test)]
pub(crate) mod tests;
