//! Regions: payloads that are passed by reference.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::slice;
use std::sync::Arc;

use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::memory::{self, Access, MOST_BYTES, Memory, Pages};
use crate::quota::Charge;

/// Seals that make the contents final.
const FINAL_SEALS: SealFlags = memory::SIZE_SEALS.union(SealFlags::WRITE);

/// Immutable bytes in memory that address spaces share: a memfd sealed against writing. Passed
/// through a gate, only its descriptor is; nothing is copied. A clone is the same region, and costs
/// a count. Freed when the last address space drops it.
///
/// [`RegionMut`] is one that is still being written.
///
/// # Examples
///
/// ```
/// use kumihimo::gate::Region;
///
/// let region = Region::copy_of(b"immutable")?;
/// let clone = region.clone();
/// assert_eq!(&region[2..], b"mutable");
/// assert_eq!(clone.as_ptr(), region.as_ptr(), "the same memory");
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Clone)]
pub struct Region(Arc<Sealed>);

struct Sealed {
    memory: Memory,
    fd: OwnedFd,
    /// What it takes of the quotas of the client that has passed it.
    _charge: Option<Charge>,
}

impl Region {
    /// Most bytes of a region: 1 GiB.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::{ErrorKind, Region, RegionMut};
    ///
    /// let error = RegionMut::new(Region::MOST + 1).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Exhausted);
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub const MOST: usize = MOST_BYTES;

    /// A region of these bytes: one copy.
    ///
    /// # Errors
    /// As [`RegionMut::new`]. Blocks nothing but for the copy.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::Region;
    ///
    /// let region = Region::copy_of(b"some bytes")?;
    /// assert_eq!(&region[..], b"some bytes");
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn copy_of(bytes: &[u8]) -> Result<Region, Error> {
        let fd = memory::new_file("kumihimo-region", bytes.len())?;
        write(fd.as_fd(), 0, bytes)?;
        Region::sealed(fd, bytes.len())
    }

    /// A region of `len` bytes, zero at first, that `write` fills in place.
    ///
    /// # Errors
    /// As [`RegionMut::new`].
    ///
    /// # Panics
    /// If `write` does.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::Region;
    ///
    /// let region = Region::new(4, |bytes| bytes[1..].copy_from_slice(b"end"))?;
    /// assert_eq!(&region[..], b"\0end");
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn new(len: usize, write: impl FnOnce(&mut [u8])) -> Result<Region, Error> {
        let mut region = RegionMut::new(len)?;
        write(&mut region);
        region.seal()
    }

    /// A region that a peer has passed, of the size that it states. Only the pages that are read
    /// cost time.
    ///
    /// # Errors
    /// `Malformed`: it is no memfd, can still be changed, has another size, or more than
    /// [`Region::MOST`]. `Exhausted`, `Io`: what the operating system says.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::{ErrorKind, Region};
    /// use std::os::fd::AsFd;
    ///
    /// // The descriptor could come from another process, over a UNIX socket.
    /// let region = Region::copy_of(b"shared")?;
    /// let fd = || region.as_fd().try_clone_to_owned().unwrap();
    /// assert_eq!(&Region::receive(fd(), 6)?[..], b"shared");
    /// assert_eq!(Region::receive(fd(), 5).unwrap_err().kind(), ErrorKind::Malformed);
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn receive(fd: OwnedFd, len: usize) -> Result<Region, Error> {
        Region::receive_charged(fd, len, None)
    }

    /// As [`receive`](Region::receive), with the charge that ends with the region.
    pub(crate) fn receive_charged(
        fd: OwnedFd,
        len: usize,
        charge: Option<Charge>,
    ) -> Result<Region, Error> {
        memory::check(fd.as_fd(), len, FINAL_SEALS)?;
        let memory = Memory::of(fd.as_fd(), len, Access::Read, Pages::AsTouched)?;
        Ok(Region(Arc::new(Sealed { memory, fd, _charge: charge })))
    }

    /// Of a file of ours that is complete.
    fn sealed(fd: OwnedFd, len: usize) -> Result<Region, Error> {
        let fd =
            if memory::seal(fd.as_fd(), FINAL_SEALS)? { fd } else { sealed_copy(fd.as_fd(), len)? };
        let memory = Memory::of(fd.as_fd(), len, Access::Read, Pages::AsTouched)?;
        Ok(Region(Arc::new(Sealed { memory, fd, _charge: None })))
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let memory = &self.0.memory;
        // SAFETY: mapped for as long as `self` lives, or empty. Nobody writes: F_SEAL_WRITE can be
        // added only while nobody has it mapped for writing, and keeps away writes, new such
        // mappings and holes; the other seals keep size and seals.
        unsafe { slice::from_raw_parts(memory.start(), memory.len()) }
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Region {
    /// Whether both are clones of one region.
    pub(crate) fn is_same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AsFd for Region {
    /// The memfd, to be passed to the process that is to [`receive`](Region::receive) it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len())
    }
}

/// A region that is still being written, in place. It is private to its owner until it is
/// [sealed](RegionMut::seal).
///
/// # Examples
///
/// ```
/// use kumihimo::gate::RegionMut;
///
/// let mut region = RegionMut::new(1 << 16)?;
/// region[..5].copy_from_slice(b"hello");
/// let region = region.seal()?;
/// assert_eq!(&region[..6], b"hello\0");
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
pub struct RegionMut {
    memory: Memory,
    fd: OwnedFd,
}

impl RegionMut {
    /// `len` bytes, all zero. Their pages are allocated now.
    ///
    /// # Errors
    /// `Exhausted`: more than [`Region::MOST`], or no memory, address space or descriptors. `Io`:
    /// memfd_create(2) is refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::RegionMut;
    ///
    /// let region = RegionMut::new(1 << 16)?;
    /// assert!(region.iter().all(|byte| *byte == 0));
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn new(len: usize) -> Result<RegionMut, Error> {
        let fd = memory::new_file("kumihimo-region", len)?;
        let memory = Memory::of(fd.as_fd(), len, Access::Write, Pages::Now)?;
        Ok(RegionMut { memory, fd })
    }

    #[cfg(test)]
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes it a [`Region`], which is immutable. If a child was forked meanwhile that still has
    /// the bytes mapped, this takes a copy.
    ///
    /// # Errors
    /// `Exhausted`: no address space; or no memory for the copy.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::{Region, RegionMut};
    ///
    /// let mut region = RegionMut::new(3)?;
    /// region.fill(b'x');
    /// let sealed: Region = region.seal()?;
    /// assert_eq!(&sealed[..], b"xxx");
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn seal(self) -> Result<Region, Error> {
        let RegionMut { memory, fd } = self;
        let len = memory.len();
        // The kernel seals nothing that is mapped for writing.
        drop(memory);
        Region::sealed(fd, len)
    }
}

impl Deref for RegionMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, or empty. Nobody else has the descriptor or
        // the mapping, so it changes through `&mut self` alone.
        unsafe { slice::from_raw_parts(self.memory.start(), self.memory.len()) }
    }
}

impl DerefMut for RegionMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and `self` is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.memory.start(), self.memory.len()) }
    }
}

impl fmt::Debug for RegionMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionMut({} bytes)", self.len())
    }
}

/// A file without mappings, with the bytes of one that another process can still write. Copied by
/// the kernel: in this process those writes would be a race.
#[cold]
fn sealed_copy(from: BorrowedFd<'_>, len: usize) -> Result<OwnedFd, Error> {
    let to = memory::new_file("kumihimo-region", len)?;
    let (mut at, mut part) = (0, vec![0; len.min(1 << 16)]);
    while at < len {
        match rustix::io::pread(from, &mut part, at as u64) {
            Ok(0) => return Err(unwritten(Errno::IO)),
            Ok(n) => {
                write(to.as_fd(), at, &part[..n])?;
                at += n;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(unwritten(errno)),
        }
    }
    match memory::seal(to.as_fd(), FINAL_SEALS)? {
        true => Ok(to),
        false => Err(unwritten(Errno::BUSY)),
    }
}

/// Writes all of it there. As a file: what was never mapped for writing can always be sealed.
fn write(fd: BorrowedFd<'_>, mut at: usize, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, at as u64) {
            Ok(0) => return Err(unwritten(Errno::NOSPC)),
            Ok(n) => {
                at += n;
                bytes = &bytes[n..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(unwritten(errno)),
        }
    }
    Ok(())
}

#[cold]
fn unwritten(errno: Errno) -> Error {
    let kind = match errno {
        Errno::NOSPC | Errno::NOMEM | Errno::FBIG | Errno::DQUOT => ErrorKind::Exhausted,
        _ => ErrorKind::Io,
    };
    Error::new(
        kind,
        format!("a region cannot be written: {errno}; free memory, or raise its limits"),
    )
}

#[cfg(test)]
mod tests;
