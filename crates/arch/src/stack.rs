//! Stack slots: address space for the stack, record and TLS block of a microprocess.
//!
//! ```text
//! slot_end - slot_size                            slot_end
//! | guard |  stack  ...  <- sp |  record  |  TLS block  |
//! ```
//! The caller decides the layout above the stack; this module reserves [`RECORD`] bytes of each
//! slot for the record. Slots are cut from slabs of address space, with one kind of slab for each
//! slot size.
//!
//! Slabs are never unmapped: an address that was once in a slot stays in a slot of the same class.
//! A stale reference to a record is therefore detectable and does not fault, and [`locate`] is safe
//! in a signal handler. [`release_memory`] returns memory, but not address space, to the system.
//!
//! Guards are installed with `MADV_GUARD_INSTALL` (Linux 6.13; madvise(2)). This needs no mapping
//! of its own, so `vm.max_map_count` does not limit the number of stacks. On older kernels
//! `mprotect` makes the guards, at two mappings per slot. `KUMI_LAB=guard=mprotect` forces
//! `mprotect`.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use crate::cpu;
use crate::lock::Lock;

mod guard;
use guard::guard;
pub use guard::guard_kind;

/// Bytes that a slot reserves, besides stack and TLS block, for the runtime's record of the
/// microprocess. They are never returned to the system.
pub const RECORD: usize = 512;

/// Size of the smallest slot with small pages.
const MIN_SHIFT: u32 = 15;
/// Largest size of a slab, unless a single slot is larger.
const SLAB_MAX: usize = 64 << 20;
/// Pages in the smallest slot.
const MIN_PAGES: usize = 8;

/// Returns the address space that one page table covers: one page of entries of 8 bytes. From this
/// slot size on, a slot's top and the next slot's guard share a page table; see `Pool::grow`.
const fn table_span(page: usize) -> usize {
    page / 8 * page
}

/// Returns the size of a page in bytes: 4, 16 or 64 KiB.
#[inline(always)]
pub(crate) fn page_size() -> usize {
    cpu::page_size()
}

/// A slot size: about 32 KiB, 64 KiB, ... 1 GiB. [`Class::slot_size`] returns the exact size. A
/// slot has eight pages at least: with pages of 16 or 64 KiB the smallest classes have the same
/// size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// Number of classes; every [`Class::index`] is below it.
    pub const COUNT: usize = 16;
    /// The largest class (1 GiB).
    pub const MAX: Class = Class(Self::COUNT as u8 - 1);

    /// Returns the class with this index, if there is one.
    pub const fn from_index(index: usize) -> Option<Class> {
        if index < Self::COUNT { Some(Class(index as u8)) } else { None }
    }

    /// Returns the address space of a slot in bytes, including guard and record. From 128 KiB up to
    /// below 2 MiB, a slot is one page larger than the power of two.
    ///
    /// The TLB selects a set by the low bits of the page number. With slots a power of two apart,
    /// the tops of all stacks would compete for a few sets, and a thousand switches in turn would
    /// miss the TLB a thousand times.
    #[inline]
    pub fn slot_size(self) -> usize {
        self.slot_size_with(page_size())
    }

    /// Returns the same for a system with pages of `page` bytes.
    #[must_use]
    pub const fn slot_size_with(self, page: usize) -> usize {
        let size = self.power(page);
        if size >= 128 << 10 && size < table_span(page) { size + page } else { size }
    }

    const fn power(self, page: usize) -> usize {
        let size = 1 << (MIN_SHIFT + self.0 as u32);
        if size < MIN_PAGES * page { MIN_PAGES * page } else { size }
    }

    /// Returns the size of the guard at the bottom of a slot in bytes: a sixteenth of the slot,
    /// between a page and 64 KiB.
    ///
    /// Rust code probes every page of a large frame, so one page is enough for it; C code usually
    /// does not.
    #[inline]
    pub fn guard_size(self) -> usize {
        self.guard_size_with(page_size())
    }

    const fn guard_size_with(self, page: usize) -> usize {
        let part = self.power(page) / 16;
        if part < page {
            page
        } else if part > 64 << 10 {
            64 << 10
        } else {
            part
        }
    }

    /// Returns the bytes of stack that a slot offers beside a TLS block of `tls_bytes`.
    pub fn usable(self, tls_bytes: usize) -> usize {
        self.usable_with(page_size(), tls_bytes)
    }

    const fn usable_with(self, page: usize, tls_bytes: usize) -> usize {
        let stack = self.slot_size_with(page) - self.guard_size_with(page) - RECORD;
        stack.saturating_sub(tls_bytes)
    }

    /// Returns the index of the class; the smallest class has index 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Error: no slot is large enough for the requested stack size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackError {
    requested: usize,
    largest: usize,
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stack size of {} bytes is too large: the largest is {} bytes",
            self.requested, self.largest
        )
    }
}

impl std::error::Error for StackError {}

impl From<StackError> for io::Error {
    fn from(e: StackError) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, e)
    }
}

/// Returns the smallest class with at least `stack_size` bytes of usable stack beside a TLS block
/// of `tls_bytes`.
///
/// Sizes below [`minimum`], including 0, are raised to it. The caller need not round any size.
///
/// # Errors
/// Returns an error if even the 1 GiB slot is too small.
pub fn class_for(stack_size: usize, tls_bytes: usize) -> Result<Class, StackError> {
    let want = stack_size.max(minimum());
    let mut index = 0;
    while let Some(class) = Class::from_index(index) {
        if class.usable(tls_bytes) >= want {
            return Ok(class);
        }
        index += 1;
    }
    Err(StackError {
        requested: stack_size,
        largest: Class::MAX.usable(tls_bytes) & !(page_size() - 1),
    })
}

/// Returns the smallest usable stack in bytes. It has room for one signal frame (`AT_MINSIGSTKSZ`),
/// one saved extended register state (a preempted microprocess keeps it on its stack) and 6 KiB of
/// ordinary frames.
pub fn minimum() -> usize {
    static MIN: OnceLock<usize> = OnceLock::new();
    *MIN.get_or_init(|| {
        // SAFETY: getauxval only reads the auxiliary vector; it returns 0 for an unknown key.
        let signal_frame = unsafe {
            libc::getauxval(51 /* AT_MINSIGSTKSZ */)
        } as usize;
        (signal_frame.max(2048) + cpu::extended_state_bytes().max(512) + (6 << 10))
            .next_multiple_of(1024)
    })
}

/// The slot that contains an address; see [`locate`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// The end of the slot.
    pub slot_end: usize,
    /// The slot's class.
    pub class: Class,
    /// The slot's guard; its start is the start of the slot.
    pub guard: Range<usize>,
}

// Registry: which addresses are slots.

/// A run of slots of one class. It only grows, at either end, so a reader that sees an old bound
/// with a new one still sees a valid, possibly smaller, run. `end == 0`: unused.
struct Extent {
    start: AtomicUsize,
    end: AtomicUsize,
    class: AtomicU8,
}

const EXTENTS: usize = 128;

struct Chunk {
    extents: [Extent; EXTENTS],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        Chunk {
            extents: [const {
                Extent {
                    start: AtomicUsize::new(0),
                    end: AtomicUsize::new(0),
                    class: AtomicU8::new(0),
                }
            }; EXTENTS],
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

static REGISTRY: Chunk = Chunk::new();
static REGISTRY_LOCK: Lock = Lock::new();

/// Calls `f` on every extent in use until `f` returns `Some`. Lock-free; reads only static or
/// leaked memory.
fn extents<R>(mut f: impl FnMut(&Extent, Range<usize>) -> Option<R>) -> Option<R> {
    let mut chunk: &'static Chunk = &REGISTRY;
    loop {
        for e in &chunk.extents {
            // Acquire pairs with the Release in `register`: a non-zero end implies that start and
            // class are set.
            let end = e.end.load(Ordering::Acquire);
            if end == 0 {
                return None;
            }
            if let Some(r) = f(e, e.start.load(Ordering::Acquire)..end) {
                return Some(r);
            }
        }
        let next = chunk.next.load(Ordering::Acquire);
        // SAFETY: chunks are leaked boxes, published with Release after initialisation; null ends
        // the list.
        chunk = unsafe { next.as_ref()? };
    }
}

fn register(range: Range<usize>, class: Class) {
    REGISTRY_LOCK.with(|| {
        let merged = extents(|e, r| {
            if e.class.load(Ordering::Relaxed) != class.0 {
                None
            } else if r.start == range.end {
                e.start.store(range.start, Ordering::Release);
                Some(())
            } else if r.end == range.start {
                e.end.store(range.end, Ordering::Release);
                Some(())
            } else {
                None
            }
        });
        if merged.is_some() {
            return;
        }
        let mut chunk: &'static Chunk = &REGISTRY;
        loop {
            if let Some(e) = chunk.extents.iter().find(|e| e.end.load(Ordering::Relaxed) == 0) {
                e.class.store(class.0, Ordering::Relaxed);
                e.start.store(range.start, Ordering::Relaxed);
                e.end.store(range.end, Ordering::Release);
                return;
            }
            let next = chunk.next.load(Ordering::Relaxed);
            // SAFETY: as in `extents`.
            chunk = match unsafe { next.as_ref() } {
                Some(c) => c,
                None => {
                    let fresh: &'static Chunk = Box::leak(Box::new(Chunk::new()));
                    chunk.next.store(std::ptr::from_ref(fresh).cast_mut(), Ordering::Release);
                    fresh
                }
            };
        }
    });
}

/// Returns the slot that contains `addr`, if any. Async-signal-safe and lock-free.
///
/// Its cost grows with the number of separate runs of slabs, which is small because adjacent slabs
/// are merged. It is meant for fault handlers and debug checks.
pub fn locate(addr: usize) -> Option<Located> {
    extents(|e, r| {
        if !r.contains(&addr) {
            return None;
        }
        let class = Class(e.class.load(Ordering::Relaxed));
        // Runs grow by whole slots, so slots can be counted from either end.
        let slot = r.end - (r.end - addr).div_ceil(class.slot_size()) * class.slot_size();
        Some(Located {
            slot_end: slot + class.slot_size(),
            class,
            guard: slot..slot + class.guard_size(),
        })
    })
}

// Pools: slabs with slots that are not handed out yet.

/// The remaining slots of a class's newest slab. Guarded by `lock`.
struct Pool {
    lock: Lock,
    next: AtomicUsize,
    left: AtomicUsize,
    total: AtomicUsize,
}

static POOLS: [Pool; Class::COUNT] = [const {
    Pool {
        lock: Lock::new(),
        next: AtomicUsize::new(0),
        left: AtomicUsize::new(0),
        total: AtomicUsize::new(0),
    }
}; Class::COUNT];

/// Fills `out` with the ends of new slots (all zero, guard in place) and returns how many it
/// filled. The count is `out.len()`, or less (but at least one) if memory ran out on the way.
///
/// A batch costs one system call for its guards where the kernel supports it. May block the kernel
/// thread as long as an `mmap` takes.
///
/// # Errors
/// Returns an error if not one slot is available. The message names the size and the limit to
/// raise.
pub fn acquire(class: Class, out: &mut [*mut u8]) -> io::Result<usize> {
    let pool = &POOLS[class.index()];
    let mut filled = 0;
    while filled < out.len() {
        let step = pool.lock.with(|| {
            if pool.left.load(Ordering::Relaxed) == 0 {
                pool.grow(class, out.len() - filled)?;
            }
            let left = pool.left.load(Ordering::Relaxed);
            let first = pool.next.load(Ordering::Relaxed);
            let n = guard(class, first, left.min(out.len() - filled))?;
            pool.next.store(first + n * class.slot_size(), Ordering::Relaxed);
            pool.left.store(left - n, Ordering::Relaxed);
            Ok::<_, io::Error>((first, n))
        });
        match step {
            Ok((first, n)) => {
                for (i, slot) in out[filled..filled + n].iter_mut().enumerate() {
                    *slot = (first + (i + 1) * class.slot_size()) as *mut u8;
                }
                filled += n;
            }
            Err(_) if filled > 0 => return Ok(filled),
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

impl Pool {
    /// Maps a new slab. Tries large slabs first, for fewer calls; if address space is short, goes
    /// down to a single slot.
    fn grow(&self, class: Class, wanted: usize) -> io::Result<()> {
        let slot = class.slot_size();
        let most = (SLAB_MAX / slot).max(1);
        let mut count = (self.total.load(Ordering::Relaxed) / 4)
            .max(wanted)
            .clamp(64.min(most), 1024.min(most));
        // If a large slot ended at a multiple of the span of a page table, its top and its guard
        // would need a table each. The shift puts a slot's top and the next slot's guard into the
        // same table.
        let shift = if slot >= table_span(page_size()) { Class::MAX.guard_size() } else { 0 };
        loop {
            let bytes = count * slot + shift;
            // SAFETY: a new anonymous mapping at an address that the kernel chooses aliases
            // nothing.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                    -1,
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                let err = io::Error::last_os_error();
                if count > 1 {
                    count /= 2;
                    continue;
                }
                return Err(out_of_space(bytes, slot, &err));
            }
            // Huge pages would cost 2 MiB for every stack that touches its top. Kernels without
            // huge pages fail with EINVAL, which is harmless.
            // SAFETY: the advice applies to the mapping made above and changes no contents.
            unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
            let start = base as usize + shift;
            register(start..start + count * slot, class);
            self.next.store(start, Ordering::Relaxed);
            self.left.store(count, Ordering::Relaxed);
            self.total.fetch_add(count, Ordering::Relaxed);
            return Ok(());
        }
    }
}

fn out_of_space(bytes: usize, slot: usize, err: &io::Error) -> io::Error {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes the given struct.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    let hint = if known && limit.rlim_cur != libc::RLIM_INFINITY {
        format!("address space is limited to {} KiB: raise `ulimit -v`", limit.rlim_cur / 1024)
    } else {
        "memory or address space is exhausted (see vm.overcommit_memory and vm.max_map_count)"
            .to_string()
    };
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!(
            "cannot map {bytes} bytes for stacks ({} KiB a microprocess): {err}; {hint}, \
             or set a smaller Builder::stack_size or fewer microprocesses",
            slot / 1024
        ),
    )
}

/// Returns a slot's memory to the system, except the `keep_below_top` bytes below `slot_end`,
/// rounded up to whole pages. The released pages read as zero afterwards. Makes one system call;
/// leaves guard and record in place.
///
/// # Safety
/// `slot_end` must be the end of a slot of `class` from [`acquire`]. The released part must be
/// unused; in particular, `keep_below_top` must cover record, TLS block and every live stack frame.
pub unsafe fn release_memory(slot_end: usize, class: Class, keep_below_top: usize) {
    let from = slot_end - class.slot_size() + class.guard_size();
    let to = (slot_end - keep_below_top.max(RECORD)) & !(page_size() - 1);
    if from < to {
        // MADV_DONTNEED, unlike MADV_FREE, releases the memory at once and makes a reused stack
        // read as zero; madvise(2).
        // SAFETY: the range is inside the slot and, by the contract, unused.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED) };
    }
}

/// Acquires every lock of this module before a fork.
#[allow(dead_code)] // the fallback registers no fork handlers because it hands out no slots
pub(crate) fn lock_all() {
    for p in &POOLS {
        p.lock.lock();
    }
    REGISTRY_LOCK.lock();
}

/// Releases the locks of [`lock_all`], in the parent and in the child.
#[allow(dead_code)] // as above
pub(crate) fn unlock_all() {
    REGISTRY_LOCK.unlock();
    for p in &POOLS {
        p.lock.unlock();
    }
}

#[cfg(test)]
mod tests;
