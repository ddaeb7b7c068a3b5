//! The shared page: one record a kernel thread, in memory that both halves see.
//!
//! With the BPF source it is the program's map; else a memfd. Mapped by this process alone, or
//! (pinned seats) by processes of the same user. No addresses lie in it, and what is read is
//! checked: see [`crate::slot`].

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use crate::handoff::slot::Slot;

/// Marks the first record.
pub const MAGIC: u64 = 0x4b55_4d49_4849_4d4f;
/// Counts changes of [`Slot`]'s layout.
pub const VERSION: u32 = 1;

/// The first record: what the others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of a record.
    pub slot_size: u32,
    /// Highest index of a slot.
    pub slots: u32,
    /// Which pinned seat it is; 0 if none.
    pub seat: u32,
}

impl Header {
    /// Of a page with slots 1 to `slots`.
    #[must_use]
    pub const fn new(slots: u32, seat: u32) -> Header {
        Header { magic: MAGIC, version: VERSION, slot_size: size_of::<Slot>() as u32, slots, seat }
    }
}

const _: () = assert!(size_of::<Header>() <= size_of::<Slot>());

/// The mapping.
#[derive(Debug)]
pub struct Page {
    base: NonNull<Slot>,
    slots: u32,
    /// What to unmap; none if the mapping is the source's.
    own: Option<usize>,
}

// SAFETY: slots are atomics; which kernel thread may do what with them is the protocol's (`slot`).
unsafe impl Sync for Page {}
// SAFETY: as above; the mapping belongs to no thread.
unsafe impl Send for Page {}

impl Page {
    /// Anonymous shared memory for slots 1 to `slots`. Touched pages cost memory, others none.
    ///
    /// # Errors
    /// What memfd_create(2), ftruncate(2) or mmap(2) say.
    pub fn new(slots: u32) -> io::Result<Page> {
        let bytes = (slots as usize + 1) * size_of::<Slot>();
        // SAFETY: a terminated name; no other pointers.
        let fd = unsafe { libc::memfd_create(c"kumihimo-slots".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: integers only.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new mapping, wherever the kernel likes.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<Slot>()).expect("mmap gives no null");
        // SAFETY: fresh memory, large enough, and nobody else knows it.
        unsafe { base.cast::<Header>().write(Header::new(slots, 0)) };
        Ok(Page { base, slots, own: Some(bytes) })
    }

    /// A mapping of a source's, which has written its header.
    ///
    /// # Errors
    /// `InvalidData`: the header is of another version, or says more slots than fit.
    ///
    /// # Safety
    /// `bytes` bytes at `base`, page-aligned, stay mapped as long as the page exists.
    pub unsafe fn of(base: NonNull<u8>, bytes: usize) -> io::Result<Page> {
        // SAFETY: the caller's promise; a header is smaller than a page.
        let header = unsafe { base.cast::<Header>().read() };
        let fits = (header.slots as usize + 1)
            .checked_mul(size_of::<Slot>())
            .is_some_and(|needed| needed <= bytes);
        if header != Header::new(header.slots, header.seat) || !fits {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the shared page is of another version ({header:?}, {bytes} bytes); this program wants version {VERSION}: \
                     `kumi events uninstall`, then `install` with the `kumi` of this build"
                ),
            ));
        }
        Ok(Page { base: base.cast(), slots: header.slots, own: None })
    }

    /// Highest index of a slot; the lowest is 1.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Slot `index`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn slot(&self, index: u32) -> &Slot {
        assert!((1..=self.slots).contains(&index), "slot {index} of {}", self.slots);
        // SAFETY: inside the mapping; a slot is valid for any bits, since it is made of atomics.
        unsafe { self.base.add(index as usize).as_ref() }
    }

    /// Makes slot `index` that of kernel thread `tid`: masked, without a VP. Its counters go on.
    pub fn renew(&self, index: u32, tid: u32) {
        self.slot(index).renew(tid);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(bytes) = self.own {
            // SAFETY: our own mapping, and the borrows of its slots ended with the page.
            unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
