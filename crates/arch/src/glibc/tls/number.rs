//! The number by which the C library tells threads apart: the thread ID in the block, which locks
//! store as their owner.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::Tls;
use crate::cpu::fs_base;

/// The smallest number. It is above every kernel thread ID (at most 4,194,304; pid_max in
/// proc_sys_kernel(5)) and below 2^30, because futex words keep flags in the upper bits.
pub(super) const FIRST: u32 = 0x1000_0000;

/// The number that is used next.
static NEXT: AtomicU32 = AtomicU32::new(FIRST);

/// Blocks by number, in chunks that are made when they are needed.
static BLOCKS: [AtomicPtr<Chunk>; CHUNKS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS];
const CHUNKS: usize = 1 << 14;
const IN_CHUNK: usize = 1 << 14;
type Chunk = [AtomicUsize; IN_CHUNK];

/// Returns a number that was never used. glibc compares numbers to distinguish the owners of locks.
pub(super) fn next() -> u32 {
    // Relaxed: only uniqueness matters. The numbers leave their range after 800 million blocks, for
    // which memory does not suffice.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Notes that the block `fs` has this number, for ever: a block is never freed.
pub(super) fn note(number: u32, fs: *mut u8) {
    let index = (number - FIRST) as usize;
    if let Some(chunk) = BLOCKS.get(index / IN_CHUNK).and_then(made) {
        // Release: pairs with the load in `block_of`.
        chunk[index % IN_CHUNK].store(fs.expose_provenance(), Ordering::Release);
    }
}

/// Returns the chunk at this place, which it makes if there is none. `None` without memory.
fn made(place: &'static AtomicPtr<Chunk>) -> Option<&'static Chunk> {
    let mut chunk = place.load(Ordering::Acquire);
    if chunk.is_null() {
        let layout = Layout::new::<Chunk>();
        // SAFETY: the size is not 0. All zeroes are a valid chunk.
        let new = unsafe { alloc_zeroed(layout) }.cast::<Chunk>();
        let empty = std::ptr::null_mut();
        match place.compare_exchange(empty, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => chunk = new,
            Err(other) => {
                // SAFETY: allocated above, and not published.
                unsafe { dealloc(new.cast(), layout) };
                chunk = other;
            }
        }
    }
    // SAFETY: published chunks live for ever.
    unsafe { chunk.as_ref() }
}

/// Returns the address of the block with this number, if there is one. Its microprocess may have
/// ended.
pub fn block_of(number: u32) -> Option<usize> {
    let index = number.checked_sub(FIRST)? as usize;
    // SAFETY: null or a chunk, which lives for ever.
    let chunk = unsafe { BLOCKS.get(index / IN_CHUNK)?.load(Ordering::Acquire).as_ref() }?;
    Some(chunk[index % IN_CHUNK].load(Ordering::Acquire)).filter(|block| *block != 0)
}

/// The blocks that have a number. Their microprocesses may have ended.
pub fn numbered_blocks() -> impl Iterator<Item = usize> {
    let last = NEXT.load(Ordering::Relaxed);
    (FIRST..last).filter_map(block_of)
}

impl Tls {
    /// Returns the number of the calling thread. That of a microprocess is no ID of a kernel
    /// thread. 0 if the layout of blocks is unknown.
    #[inline]
    pub fn number(&self) -> u32 {
        // SAFETY: the word lies in the caller's block, and only the caller changes it.
        self.inner.map_or(0, |inner| unsafe {
            (fs_base() as *const u8).offset(inner.layout.tid).cast::<u32>().read_volatile()
        })
    }

    /// Returns the address of the calling thread's list of robust mutexes (get_robust_list(2)).
    /// `None` if the layout of blocks is unknown.
    pub fn robust_list(&self) -> Option<usize> {
        self.inner.map(|inner| fs_base().wrapping_add_signed(inner.layout.robust))
    }

    /// Returns the number of the block `fs`, which [`Tls::build`] has made.
    ///
    /// # Safety
    /// `fs` is the address of a block.
    pub unsafe fn number_of(&self, fs: usize) -> u32 {
        let fs = std::ptr::with_exposed_provenance::<u8>(fs);
        // SAFETY: the caller's promise.
        self.inner.map_or(0, |inner| unsafe { fs.offset(inner.layout.tid).cast::<u32>().read() })
    }

    /// Runs `f` with another number, which lasts for its calls of the C library only. For locks
    /// that the kernel or another process takes part in: they hold the ID of a kernel thread.
    ///
    /// # Safety
    /// `number` is the ID of the calling kernel thread, which `f` does not leave.
    pub unsafe fn with_number<R>(&self, number: u32, f: impl FnOnce() -> R) -> R {
        let Some(inner) = self.inner else { return f() };
        let own = self.number();
        // SAFETY: as above.
        let set = |number: u32| unsafe {
            (fs_base() as *mut u8).offset(inner.layout.tid).cast::<u32>().write_volatile(number);
        };
        set(number);
        let result = f();
        set(own);
        result
    }
}
