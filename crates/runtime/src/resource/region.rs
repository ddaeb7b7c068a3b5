//! Memory regions: zeroed pages that are allocated and freed without a system call each.
//!
//! Each VP has a short list of free regions for each small size, cut from slabs that are never
//! unmapped. Larger regions are mapped by mmap(2). The paper's workload uses 4 KB (P3, 5.2.1 (2)).

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Once;

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::table::{Error, Row, Usage};

use crate::kernel_thread::no_events::{NoEvents, lock};
use crate::memory::region_cache::{FREE, KEPT, PAGE, Piece, map, refill, size_of};
use crate::resource::kind_table::Entries;
use crate::resource::membership::table;
use crate::scheduler::carrier::Carrier;

static REGIONS: Entries<usize> = Entries::new(Kind::REGION);

/// A memory region: zeroed, page-aligned, and a resource of the address space with an ID. Freed
/// when it is dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::Region;
///
/// let mut region = Region::new(8192)?;
/// region[0] = 7;
/// assert_eq!((region[0], region[8191]), (7, 0));
/// assert_eq!(region.as_ptr().addr() % 4096, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Region {
    at: NonNull<u8>,
    len: usize,
    size: Option<usize>,
    serial: Serial,
}

// SAFETY: only its owner accesses it, as with a boxed slice.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates `len` bytes, rounded up to whole pages by the kernel. Does not block. Makes a
    /// system call occasionally, and for each region beyond 64 KiB.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is 0. `OutOfMemory` if there is no memory, or no slot left in the
    /// table; the error text names the cause.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Region;
    /// use std::io::ErrorKind;
    ///
    /// let region = Region::new(100).unwrap();
    /// assert!(region.len() == 100 && region.iter().all(|byte| *byte == 0));
    /// assert_eq!(Region::new(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    /// ```
    pub fn new(len: usize) -> io::Result<Region> {
        define();
        if len == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a memory region has at least one byte",
            ));
        }
        let size = size_of(len);
        let at = match size {
            Some(size) => take(size)?.0,
            None => map(len.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?)?,
        };
        match REGIONS.open(len) {
            Ok(serial) => Ok(Region { at, len, size, serial }),
            Err(e) => {
                give(at, len, size);
                Err(io::Error::new(io::ErrorKind::OutOfMemory, e.to_string()))
            }
        }
    }

    /// Returns its ID, of kind `region`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Region};
    ///
    /// let (one, other) = (Region::new(4096)?, Region::new(4096)?);
    /// assert_eq!(one.id().kind(), Kind::REGION);
    /// assert_ne!(one.id(), other.id());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> Id {
        REGIONS.id(self.serial)
    }
}

fn take(size: usize) -> io::Result<Piece> {
    if let Some(carrier) = Carrier::current() {
        let kept = &carrier.vp().regions;
        if let Some(piece) = kept.take(size) {
            return Ok(piece);
        }
        let mut some = refill(size, if kept.shared.get() { 1 } else { KEPT / 2 })?;
        let first = some.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        some.into_iter().for_each(|piece| drop(kept.give(size, piece)));
        return Ok(first);
    }
    refill(size, 1)?.pop().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn give(at: NonNull<u8>, len: usize, size: Option<usize>) {
    let Some(size) = size else {
        // SAFETY: mapped by `new` with this length, which the kernel rounds up in both calls.
        unsafe { libc::munmap(at.as_ptr().cast(), len) };
        return;
    };
    // SAFETY: exclusively owned until it is given back. Zeroed, so that the next owner cannot read
    // the data.
    unsafe { at.write_bytes(0, len) };
    let _quiet = NoEvents::new();
    let surplus = match Carrier::current() {
        Some(carrier) => carrier.vp().regions.give(size, Piece(at)),
        None => vec![Piece(at)],
    };
    if !surplus.is_empty() {
        lock(&FREE[size]).extend(surplus);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Succeeds: the region was opened, and only this drop closes it.
        let _ = REGIONS.close(self.serial);
        give(self.at, self.len, self.size);
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: that much initialised (zeroed) memory, owned as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

struct Regions;

fn define() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = table().define(&Regions);
    });
}

impl Row for Regions {
    fn kind(&self) -> Kind {
        Kind::REGION
    }

    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let text = REGIONS.with(serial, |len| format!("{len} bytes"))?;
        into.extend_from_slice(text.as_bytes());
        Ok(text.len())
    }

    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        REGIONS.usage(each, |len| format!("{len} bytes"));
    }
}

#[cfg(test)]
mod tests;
