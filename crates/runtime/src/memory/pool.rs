//! Pool of free microprocess slots with their TLS blocks, ready to run.
//!
//! A VP keeps a short list per kind, so that spawn and exit access nothing shared. The lists
//! exchange batches with a pool that belongs to the process, not to one runtime. A used block is
//! never discarded, because the allocator's per-thread cache in it would leak. Slots are made in
//! batches, and an idle VP makes some ahead of need ([`VpPool::top_up`]).

use std::cell::Cell;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use kumihimo_arch::stack::{self, Class};
use kumihimo_arch::tls;
use kumihimo_resource::table::has_whole_kinds;

use crate::kernel_thread::no_events::lock;
use crate::microprocess::identity;
use crate::microprocess::record::{self, Mp};

/// Number of slots that one exchange between a VP's list and the pool moves.
const BATCH: usize = 64;
/// Maximum of a VP's list: number of slots, and bytes of address space.
const LOCAL_MAX: usize = 512;
const LOCAL_MAX_BYTES: usize = 32 << 20;
/// The same in a runtime with limits on stacks, where slots in one VP's list are unavailable to the
/// others.
const LOCAL_MAX_LIMITED: usize = 4;
/// One VP's list keeps at most this part of the limit, so that a small limit is exact.
const LOCAL_SHARE: usize = 64;

/// Slot size, and whether the slot lacks a TLS block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotKind {
    pub(crate) class: Class,
    pub(crate) lean: bool,
}

const KINDS: usize = Class::COUNT * 2;

impl SlotKind {
    /// Returns the kind of slot for a stack of `size` bytes.
    pub(crate) fn for_stack(size: usize, lean: bool) -> io::Result<SlotKind> {
        let block = if lean { 0 } else { tls::get().bytes() };
        let class_for = |extra| {
            stack::class_for(size, block + extra)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))
        };
        let class = class_for(0)?;
        // The shift for cache colouring may require the next larger size.
        let class = class_for(record::colour_max(class.slot_size()))?.max(class);
        Ok(SlotKind { class, lean })
    }

    fn index(self) -> usize {
        self.class.index() * 2 + usize::from(self.lean)
    }

    fn of(mp: &Mp) -> SlotKind {
        SlotKind { class: mp.class.get(), lean: mp.fs.get() == 0 }
    }
}

/// Free items of one kind. Taken from the end, so the items at the front have been unused for
/// longest.
///
/// Invariant: `trimmed` <= `unused` <= length of the list.
struct Free<T = &'static Mp> {
    list: Vec<T>,
    /// Minimum length of the list since the last [`trim_unused`]: that many items at the front were
    /// not used meanwhile.
    unused: usize,
    /// Number of items at the front whose memory was given back.
    trimmed: usize,
}

impl<T> Free<T> {
    const fn new() -> Free<T> {
        Free { list: Vec::new(), unused: 0, trimmed: 0 }
    }

    /// Takes the last items, at most `n`.
    fn take(&mut self, n: usize) -> Vec<T> {
        let rest = self.list.len() - n.min(self.list.len());
        self.unused = self.unused.min(rest);
        self.trimmed = self.trimmed.min(rest);
        self.list.split_off(rest)
    }

    /// Takes items that were not used since the last trim and still have memory to give back, at
    /// most `TRIM_BATCH`.
    fn take_unused(&mut self) -> Vec<T> {
        let n = (self.unused - self.trimmed).min(TRIM_BATCH);
        self.unused -= n;
        self.list.drain(self.trimmed..self.trimmed + n).collect()
    }

    /// Returns items whose memory was given back.
    fn put_trimmed(&mut self, batch: Vec<T>) {
        let (at, n) = (self.trimmed, batch.len());
        self.list.splice(at..at, batch);
        self.trimmed += n;
        self.unused += n;
    }
}

static FREE: [Mutex<Free>; KINDS] = [const { Mutex::new(Free::new()) }; KINDS];
/// Maximum number of items of each kind that one trim handles: some milliseconds of an idle VP.
const TRIM_BATCH: usize = 2048;
/// The oldest record. Each record links to the next newer one.
pub(crate) static OLDEST: AtomicPtr<Mp> = AtomicPtr::new(std::ptr::null_mut());
/// The newest record. All records, living or not, form a list that only grows and starts at the
/// root in [`crate::observe::debug`]. This is its other end.
static ALL: Mutex<Option<&'static Mp>> = Mutex::new(None);
static SLOTS: AtomicUsize = AtomicUsize::new(0);
static STACK_BYTES: AtomicU64 = AtomicU64::new(0);

/// Limits of the running runtime; `usize::MAX` and `u64::MAX` mean no limit.
pub(crate) static MAX_SLOTS: AtomicUsize = AtomicUsize::new(usize::MAX);
pub(crate) static MAX_STACK_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

/// One VP's lists. Owner only.
pub(crate) struct VpPool {
    head: [Cell<*const Mp>; KINDS],
    len: [Cell<usize>; KINDS],
    most: [usize; KINDS],
}

impl VpPool {
    pub(crate) fn new() -> VpPool {
        VpPool {
            head: [const { Cell::new(std::ptr::null()) }; KINDS],
            len: [const { Cell::new(0) }; KINDS],
            most: std::array::from_fn(Self::most),
        }
    }

    fn most(kind: usize) -> usize {
        // With that locking design, all slots of a kind are in one list under its lock. And a new
        // block of a donor takes a kernel thread, which the process may not get: no VP asks for one
        // while another keeps some.
        if has_whole_kinds() || tls::get().kind() == tls::Kind::Donor {
            return 0;
        }
        let (slots, bytes) =
            (MAX_SLOTS.load(Ordering::Relaxed), MAX_STACK_BYTES.load(Ordering::Relaxed));
        let limited = slots != usize::MAX || bytes != u64::MAX;
        let most = if limited { LOCAL_MAX_LIMITED } else { LOCAL_MAX };
        Class::from_index(kind / 2).map_or(0, |class| {
            let within =
                slots.min(usize::try_from(bytes).unwrap_or(usize::MAX) / class.slot_size());
            most.min(LOCAL_MAX_BYTES / class.slot_size()).min(within / LOCAL_SHARE)
        })
    }

    /// Takes a microprocess in its FREE phase.
    #[inline]
    pub(crate) fn take(&self, kind: SlotKind) -> io::Result<&'static Mp> {
        let i = kind.index();
        let mp = self.head[i].get();
        if mp.is_null() {
            return self.refill(kind);
        }
        // SAFETY: lists contain records, which live for ever.
        let mp = unsafe { &*mp };
        self.head[i].set(mp.next_free.get());
        self.len[i].set(self.len[i].get() - 1);
        Ok(mp)
    }

    /// Returns a microprocess in its FREE phase.
    #[inline]
    pub(crate) fn give(&self, mp: &'static Mp) {
        let i = SlotKind::of(mp).index();
        mp.next_free.set(self.head[i].get());
        self.head[i].set(mp);
        let n = self.len[i].get() + 1;
        self.len[i].set(n);
        if n > self.most[i] {
            self.spill(i, self.most[i] / 2);
        }
    }

    #[cold]
    fn refill(&self, kind: SlotKind) -> io::Result<&'static Mp> {
        if self.most[kind.index()] == 0 {
            return take_outside(kind);
        }
        let mut batch = take_batch(kind);
        if batch.is_empty() {
            batch = make(kind, at_once())?;
        }
        let first = batch.pop().ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        for mp in batch {
            self.give(mp);
        }
        Ok(first)
    }

    #[cold]
    fn spill(&self, i: usize, keep: usize) {
        let mut free = lock(&FREE[i]);
        while self.len[i].get() > keep {
            let mp = self.head[i].get();
            // SAFETY: as in `take`; the list contains `len` records.
            let mp = unsafe { &*mp };
            self.head[i].set(mp.next_free.get());
            self.len[i].set(self.len[i].get() - 1);
            free.list.push(mp);
        }
    }

    /// Returns all slots to the process's pool, because the runtime ends.
    pub(crate) fn clear(&self) {
        for i in 0..KINDS {
            if self.len[i].get() > 0 {
                self.spill(i, 0);
            }
        }
    }

    /// Refills the list of the default kind with a batch if it is empty. Called by an idle VP, off
    /// the critical path. Ignores failures.
    pub(crate) fn top_up(&self, kind: SlotKind) {
        // In 1:1 mode no block can be built, and each attempt would waste a batch of slots. A donor
        // is waited for. A list that keeps nothing would take the last slot of a limit for a
        // moment.
        if self.len[kind.index()].get() == 0
            && self.most[kind.index()] != 0
            && tls::get().kind() == tls::Kind::Clone
            && let Ok(mp) = self.refill(kind)
        {
            self.give(mp);
        }
    }
}

/// A kernel thread that outlives its runtime keeps the VPs, and so these lists, until it ends.
impl Drop for VpPool {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Number of slots that are made at once. A donor's block is made by a kernel thread, for which the
/// VP waits; under a CPU quota, that takes up to a period for each.
fn at_once() -> usize {
    match tls::get().kind() {
        tls::Kind::Donor => 1,
        tls::Kind::Clone | tls::Kind::Kernel => BATCH,
    }
}

fn take_batch(kind: SlotKind) -> Vec<&'static Mp> {
    lock(&FREE[kind.index()]).take(BATCH)
}

/// Takes a microprocess for a caller without a VP.
pub(crate) fn take_outside(kind: SlotKind) -> io::Result<&'static Mp> {
    if let Some(mp) = lock(&FREE[kind.index()]).take(1).pop() {
        return Ok(mp);
    }
    let mut batch = make(kind, 1)?;
    batch.pop().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Returns a microprocess from a caller without a VP.
pub(crate) fn give_outside(mp: &'static Mp) {
    lock(&FREE[SlotKind::of(mp).index()]).list.push(mp);
}

/// Makes up to `n` new slots with their blocks; at least one.
fn make(kind: SlotKind, n: usize) -> io::Result<Vec<&'static Mp>> {
    let n = reserve(kind, n)?;
    let mut ends = [std::ptr::null_mut(); BATCH];
    let got = match stack::acquire(kind.class, &mut ends[..n]) {
        Ok(got) => got,
        Err(e) => {
            unreserve(kind, n);
            return Err(e);
        }
    };
    unreserve(kind, n - got);
    let mut made = Vec::with_capacity(got);
    let mut failure = None;
    for &end in &ends[..got] {
        let (lo, hi) = ends_of(kind.class, end);
        let (mut top, mut fs) = (hi, 0);
        if !kind.lean {
            // SAFETY: the slot's memory is new, zeroed and exclusively owned.
            match unsafe { tls::get().build(lo, hi) } {
                // SAFETY: just built.
                Ok(block) => (top, fs) = (unsafe { tls::get().stack_top(block) }, block as usize),
                // The slot stays unused. Building a block fails only when the heap is exhausted,
                // which is rare and fatal for most programs.
                Err(e) => {
                    failure = Some(e);
                    continue;
                }
            }
        }
        let Some(serial) = identity::first() else {
            failure = Some(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "no id is left for another microprocess: all slots of this address space are in use or were used up",
            ));
            continue;
        };
        // SAFETY: a new slot of this class, with the block above `top`.
        let mp = unsafe { Mp::create(end, kind.class, top, fs, serial) };
        identity::made(mp, serial);
        made.push(mp);
    }
    if let (true, Some(e)) = (made.is_empty(), failure) {
        return Err(e);
    }
    append(&made);
    Ok(made)
}

fn reserve(kind: SlotKind, n: usize) -> io::Result<usize> {
    let size = kind.class.slot_size() as u64;
    let (max_slots, max_bytes) =
        (MAX_SLOTS.load(Ordering::Relaxed), MAX_STACK_BYTES.load(Ordering::Relaxed));
    let slots = SLOTS.fetch_add(n, Ordering::Relaxed);
    let bytes = STACK_BYTES.fetch_add(n as u64 * size, Ordering::Relaxed);
    let fit = n
        .min(max_slots.saturating_sub(slots))
        .min(usize::try_from(max_bytes.saturating_sub(bytes) / size).unwrap_or(usize::MAX));
    unreserve(kind, n - fit);
    if fit == 0 {
        return Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "no room for another microprocess: {slots} stacks, {} MiB of stack space in use; limits: \
                 {max_slots} stacks, {} MiB; raise Builder::max_stacks or Builder::max_stack_memory, or end some",
                bytes >> 20,
                max_bytes >> 20
            ),
        ));
    }
    Ok(fit)
}

fn unreserve(kind: SlotKind, n: usize) {
    SLOTS.fetch_sub(n, Ordering::Relaxed);
    STACK_BYTES.fetch_sub(n as u64 * kind.class.slot_size() as u64, Ordering::Relaxed);
}

/// Returns the lowest address and the end of the memory that stack, record and block share.
pub(crate) fn bounds(mp: &Mp) -> (*mut u8, *mut u8) {
    ends_of(mp.class.get(), mp.slot_end())
}

fn ends_of(class: Class, slot_end: *mut u8) -> (*mut u8, *mut u8) {
    (
        slot_end.wrapping_sub(class.slot_size()).wrapping_add(class.guard_size()),
        record::coloured_end(slot_end, class),
    )
}

/// Marks the stack as empty for AddressSanitizer. A microprocess never returns from its last
/// frames, so their red zones would stay marked for the next one on the same slot.
/// `scripts/sanitize` sets the cfg.
#[cfg(kumihimo_asan)]
pub(crate) fn forget_frames(mp: &Mp) {
    unsafe extern "C" {
        fn __asan_unpoison_memory_region(from: *const u8, bytes: usize);
    }
    let (low, top) = (bounds(mp).0, mp.stack_top());
    // SAFETY: changes only the sanitizer's shadow memory, for a stack on which nothing runs.
    unsafe { __asan_unpoison_memory_region(low, top.addr() - low.addr()) };
}

fn append(made: &[&'static Mp]) {
    let mut newest = lock(&ALL);
    for &mp in made {
        let link = newest.map_or(&OLDEST, |mp| &mp.newer);
        // Release: a reader that follows the link reads an initialised record.
        link.store(std::ptr::from_ref(mp).cast_mut(), Ordering::Release);
        *newest = Some(mp);
    }
}

/// Visits every record ever made, oldest first. Takes no lock: records may be added meanwhile, and
/// are never removed.
pub(crate) fn for_each(mut f: impl FnMut(&'static Mp)) {
    let mut link = &OLDEST;
    // SAFETY: null or a record that `append` stored there, which lives for ever.
    while let Some(mp) = unsafe { link.load(Ordering::Acquire).as_ref() } {
        f(mp);
        link = &mp.newer;
    }
}

/// Returns the first record for which `is_it` returns true, as [`for_each`].
pub(crate) fn find(is_it: impl Fn(&'static Mp) -> bool) -> Option<&'static Mp> {
    let mut found = None;
    for_each(|mp| {
        if found.is_none() && is_it(mp) {
            found = Some(mp);
        }
    });
    found
}

/// Returns the number of slots, and their address space in bytes.
pub(crate) fn totals() -> (usize, u64) {
    (SLOTS.load(Ordering::Relaxed), STACK_BYTES.load(Ordering::Relaxed))
}

/// Returns the stack memory of all pooled slots to the kernel, and returns the number of slots.
/// Blocks and records stay.
pub(crate) fn trim() -> usize {
    FREE.iter().map(|free| give_back(free, |free| free.take(usize::MAX))).sum()
}

/// Returns the memory of slots that were not used since the last trim to the kernel. Returns
/// whether the next trim may find more.
pub(crate) fn trim_unused() -> bool {
    let mut more = false;
    for free in &FREE {
        give_back(free, Free::take_unused);
        let mut free = lock(free);
        free.unused = free.list.len();
        more |= free.trimmed < free.list.len();
    }
    more
}

fn give_back(free: &Mutex<Free>, take: impl FnOnce(&mut Free) -> Vec<&'static Mp>) -> usize {
    // Taken out of the list, so that the lock is not held during system calls.
    let batch = take(&mut lock(free));
    for mp in &batch {
        let keep = mp.slot_end() as usize - mp.stack_top() as usize;
        // SAFETY: the slot is pooled, so nothing on its stack is in use; block and record are above
        // the released range.
        unsafe { stack::release_memory(mp.slot_end() as usize, mp.class.get(), keep) };
    }
    let n = batch.len();
    if n > 0 {
        lock(free).put_trimmed(batch);
    }
    n
}

#[cfg(test)]
mod tests;
