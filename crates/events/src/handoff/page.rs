//! The shared page: a record for each kernel thread, in memory that both halves map.
//!
//! With the BPF source the page is the program's map; otherwise it is a memfd. It is mapped by this
//! process alone or, for a pinned seat, by processes of the same user. The page contains no
//! addresses, and every value read from it is checked: see [`crate::slot`].

use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

use kumihimo_arch::descriptor::Descriptor;

use crate::handoff::slot::Slot;

/// The first word of the page.
pub const MAGIC: u64 = 0x4b55_4d49_4849_4d4f;
/// The version of [`Slot`]'s layout.
pub const VERSION: u32 = 1;

/// The first record: describes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// The size of a record in bytes.
    pub slot_size: u32,
    /// The highest index of a slot.
    pub slots: u32,
    /// The number of the pinned seat; 0 if the page belongs to none.
    pub seat: u32,
}

impl Header {
    /// Returns the header of a page with slots 1 to `slots`.
    #[must_use]
    pub const fn new(slots: u32, seat: u32) -> Header {
        Header { magic: MAGIC, version: VERSION, slot_size: size_of::<Slot>() as u32, slots, seat }
    }
}

const _: () = assert!(size_of::<Header>() <= size_of::<Slot>());

/// A mapping of the shared page.
#[derive(Debug)]
pub struct Page {
    base: NonNull<Slot>,
    slots: u32,
    /// The length to unmap, or `None` if the source owns the mapping.
    own: Option<usize>,
}

// SAFETY: slots consist of atomics. The protocol (`slot`) defines which kernel thread may access
// them.
unsafe impl Sync for Page {}
// SAFETY: as above; the mapping belongs to no thread.
unsafe impl Send for Page {}

impl Page {
    /// Maps shared memory for slots 1 to `slots`. Only pages that are touched use memory.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2) and mmap(2).
    pub fn new(slots: u32) -> io::Result<Page> {
        let bytes = (slots as usize + 1) * size_of::<Slot>();
        // SAFETY: the name is NUL-terminated; there are no other pointers.
        let fd = unsafe { libc::memfd_create(c"kumihimo-slots".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        let fd = unsafe { Descriptor::from_raw_fd(fd) };
        // SAFETY: integers only.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new mapping at an address that the kernel chooses.
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
        // SAFETY: new memory, large enough, with no other reference to it.
        unsafe { base.cast::<Header>().write(Header::new(slots, 0)) };
        Ok(Page { base, slots, own: Some(bytes) })
    }

    /// Uses a mapping that belongs to a source. The source has written the header.
    ///
    /// # Errors
    /// `InvalidData`: the header has another version, or claims more slots than fit.
    ///
    /// # Safety
    /// The `bytes` bytes at `base`, which is page-aligned, stay mapped while the page exists.
    pub unsafe fn of(base: NonNull<u8>, bytes: usize) -> io::Result<Page> {
        // SAFETY: the caller guarantees the mapping; a header is smaller than a page.
        let header = unsafe { base.cast::<Header>().read() };
        let fits = (header.slots as usize + 1)
            .checked_mul(size_of::<Slot>())
            .is_some_and(|needed| needed <= bytes);
        if header != Header::new(header.slots, header.seat) || !fits {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the shared page has another version ({header:?}, {bytes} bytes); this program needs version {VERSION}: run \
                     `kumi events uninstall`, then `kumi events install` with the `kumi` of this build"
                ),
            ));
        }
        Ok(Page { base: base.cast(), slots: header.slots, own: None })
    }

    /// Returns the highest index of a slot. The lowest is 1.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns slot `index`.
    ///
    /// # Panics
    /// If the page has no slot of this index.
    #[must_use]
    pub fn slot(&self, index: u32) -> &Slot {
        assert!((1..=self.slots).contains(&index), "slot {index} of {}", self.slots);
        // SAFETY: the slot is inside the mapping. Every bit pattern is a valid slot, since a slot
        // consists of atomics.
        unsafe { self.base.add(index as usize).as_ref() }
    }

    /// Assigns slot `index` to kernel thread `tid`: masked and without a VP. Its counters continue.
    pub fn renew(&self, index: u32, tid: u32) {
        self.slot(index).renew(tid);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(bytes) = self.own {
            // SAFETY: the page owns the mapping, and the borrows of its slots have ended.
            unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
