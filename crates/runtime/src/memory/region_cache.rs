//! Free memory regions. Each VP has a short list for each small size; regions are cut from slabs
//! that are never unmapped.

use std::cell::{Cell, RefCell};
use std::io;
use std::ptr::NonNull;
use std::sync::Mutex;

use kumihimo_resource::table::has_whole_kinds;

use crate::kernel_thread::no_events::lock;

pub(crate) const PAGE: usize = 4096;

/// Number of sizes that are cut from slabs: 1, 2, 4, 8 and 16 pages.
pub(crate) const SIZES: usize = 5;

pub(crate) const SLAB: usize = 2 << 20;

/// Maximum number of free regions of each size in a VP's list.
pub(crate) const KEPT: usize = 64;

/// Free regions that are in no VP's list, by size.
pub(crate) static FREE: [Mutex<Vec<Piece>>; SIZES] = [const { Mutex::new(Vec::new()) }; SIZES];

/// A free piece of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece(pub(crate) NonNull<u8>);

// SAFETY: memory of a slab that only the owner of the piece accesses.
unsafe impl Send for Piece {}

/// One VP's free regions. Owner only.
#[derive(Debug, Default)]
pub(crate) struct RegionCache {
    free: [RefCell<Vec<Piece>>; SIZES],
    /// Whether the lists are bypassed, because the locking design has one list for all VPs.
    pub(crate) shared: Cell<bool>,
}

impl RegionCache {
    pub(crate) fn new() -> RegionCache {
        RegionCache { free: Default::default(), shared: Cell::new(has_whole_kinds()) }
    }

    pub(crate) fn take(&self, size: usize) -> Option<Piece> {
        self.free[size].borrow_mut().pop()
    }

    /// Returns a piece to the list. Returns the surplus, which the caller gives to the shared list.
    pub(crate) fn give(&self, size: usize, piece: Piece) -> Vec<Piece> {
        if self.shared.get() {
            return vec![piece];
        }
        let mut free = self.free[size].borrow_mut();
        free.push(piece);
        if free.len() > KEPT { free.split_off(KEPT / 2) } else { Vec::new() }
    }

    /// Returns all pieces to the process, because the runtime ends.
    pub(crate) fn clear(&self) {
        for (size, free) in self.free.iter().enumerate() {
            lock(&FREE[size]).append(&mut free.borrow_mut());
        }
    }
}

/// A kernel thread that outlives its runtime keeps the VPs, and so these lists, until it ends.
impl Drop for RegionCache {
    fn drop(&mut self) {
        self.clear();
    }
}

pub(crate) fn size_of(bytes: usize) -> Option<usize> {
    let size = bytes.div_ceil(PAGE).max(1).next_power_of_two().ilog2() as usize;
    (size < SIZES).then_some(size)
}

/// Takes up to `n` pieces of one size from the shared list, or from a new slab.
#[cold]
pub(crate) fn refill(size: usize, n: usize) -> io::Result<Vec<Piece>> {
    let mut free = lock(&FREE[size]);
    if free.is_empty() {
        let slab = map(SLAB)?;
        let bytes = PAGE << size;
        // SAFETY: within the slab.
        free.extend((0..SLAB / bytes).rev().map(|i| Piece(unsafe { slab.add(i * bytes) })));
    }
    let rest = free.len().saturating_sub(n);
    Ok(free.split_off(rest))
}

pub(crate) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: new, anonymous, private memory.
    let at = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        let e = io::Error::last_os_error();
        return Err(io::Error::new(
            e.kind(),
            format!("cannot map a memory region of {bytes} bytes: {e}"),
        ));
    }
    Ok(NonNull::new(at.cast()).expect("mmap gives no null"))
}
