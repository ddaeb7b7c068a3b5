//! Links that an item carries, and the place that it requests.

use core::ptr::NonNull;

use crate::loom::{AtomicPtr, AtomicU32, Cell, Ordering};

/// Levels of a queue: 0 is the lowest, 63 the highest.
pub const LEVELS: usize = 64;

/// A type whose values can be queued.
///
/// # Safety
/// - `links` returns the same `Links` for the life of the value, and no code outside this crate
///   accesses it.
/// - The value is not moved, freed or reused while it is in a queue.
/// - There is one *holder* at a time: the thread that took the item from a queue, or created it.
///   Only the holder puts it into a queue. Any other transfer to another kernel thread requires a
///   happens-before edge.
pub unsafe trait Node: Sized {
    /// Returns the item's links.
    fn links(&self) -> &Links<Self>;
}

/// The position of an item in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 0..=63; level 63 is served first. Higher bits are ignored.
    pub level: u8,
    /// Within the level, items with a key precede those without. The smallest key is first; equal
    /// keys are in order of arrival.
    pub key: Option<u64>,
    /// Before the other items of the level; with a key, before those of equal key.
    pub front: bool,
}

impl Place {
    /// Returns the back of a level.
    #[inline]
    pub const fn back(level: u8) -> Place {
        Place { level, key: None, front: false }
    }

    /// Returns the front of a level.
    #[inline]
    pub const fn front(level: u8) -> Place {
        Place { level, key: None, front: true }
    }

    /// Returns a place that is ordered by key within its level.
    #[inline]
    pub const fn keyed(level: u8, key: u64) -> Place {
        Place { level, key: Some(key), front: false }
    }
}

/// Why an item is runnable. Determines whether the item may leave its VP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The item is new. It may leave.
    Spawn,
    /// The item was woken. `surplus` does not give it away: its waker or its data is on this VP,
    /// and it should run soon, but a VP cannot take items back from its Waiver Queue.
    /// [`loosen`](crate::Owner::loosen) lifts this restriction, and the `steal` design ignores it.
    Wake,
    /// The item ran and yielded or was preempted. It may leave.
    Yield,
}

// The word of an item: bits 0..6 hold the level, bit 6 is set if the item is movable, bit 7 if it
// has a key. Bits 16..32 hold 1 + the VP whose Protect Queue contains the item, or 0.
//
// The word is atomic because a former owner may read it while another VP has the item. Relaxed is
// sufficient: only the owner writes its own number, so it always reads its own number correctly.
const LEVEL: u32 = 63;
const MOVABLE: u32 = 1 << 6;
const KEYED: u32 = 1 << 7;
const HOME_SHIFT: u32 = 16;

/// The part of an item that the queues use.
pub struct Links<T> {
    pub(crate) next: Cell<*mut T>,
    /// Valid only while the item is not the head of its list.
    pub(crate) prev: Cell<*mut T>,
    pub(crate) key: Cell<u64>,
    /// Index in the heap of its level.
    pub(crate) index: Cell<u32>,
    pub(crate) word: AtomicU32,
    pub(crate) inject_next: AtomicPtr<T>,
}

// SAFETY: only the holder of the item, or the owner of the queue that contains it, accesses the
// cells. Items pass between them by release/acquire pairs (contract of `Node`). The remaining
// fields are atomic. No code reaches a `T` through its `Links`, so `T` needs no bound here;
// creating a handle that returns `T`s is unsafe.
unsafe impl<T> Sync for Links<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Links<T> {}

impl<T> Links<T> {
    /// Returns the links of an item that is in no queue.
    #[cfg(not(loom))]
    pub const fn new() -> Links<T> {
        Links {
            next: Cell::new(core::ptr::null_mut()),
            prev: Cell::new(core::ptr::null_mut()),
            key: Cell::new(0),
            index: Cell::new(0),
            word: AtomicU32::new(0),
            inject_next: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Returns the links of an item that is in no queue.
    #[cfg(loom)]
    pub fn new() -> Links<T> {
        Links {
            next: Cell::new(core::ptr::null_mut()),
            prev: Cell::new(core::ptr::null_mut()),
            key: Cell::new(0),
            index: Cell::new(0),
            word: AtomicU32::new(0),
            inject_next: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Returns the level of the last place that the item was given. Any kernel thread may call
    /// this; the result may be outdated at once.
    #[inline]
    pub fn level(&self) -> u8 {
        (self.word.load(Ordering::Relaxed) & LEVEL) as u8
    }

    /// Returns the next item in the list, if the item is in a list. Only for the owner of the
    /// queue.
    #[inline]
    pub fn peek_next(&self) -> Option<NonNull<T>> {
        NonNull::new(self.next.get())
    }

    /// Stores place and origin, without a home. Only for the holder.
    #[cfg(all(feature = "lab", not(loom)))] // used only by `steal`
    #[inline]
    pub(crate) fn set(&self, place: Place, origin: Origin) {
        self.word.store(word(place.level, origin, place.key), Ordering::Relaxed);
        if let Some(key) = place.key {
            self.key.set(key);
        }
    }

    /// Returns the last stored place, at the back of its level. Only for the holder.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        let w = self.word.load(Ordering::Relaxed);
        Place {
            level: (w & LEVEL) as u8,
            key: (w & KEYED != 0).then(|| self.key.get()),
            front: false,
        }
    }

    #[inline]
    pub(crate) fn movable(&self) -> bool {
        self.word.load(Ordering::Relaxed) & MOVABLE != 0
    }

    #[inline]
    pub(crate) fn loosen(&self) {
        let w = self.word.load(Ordering::Relaxed);
        self.word.store(w | MOVABLE, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn keyed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & KEYED != 0
    }

    #[inline]
    pub(crate) fn is_home(&self, vp: usize) -> bool {
        self.word.load(Ordering::Relaxed) >> HOME_SHIFT == vp as u32 + 1
    }

    #[inline]
    pub(crate) fn leave_home(&self) {
        let w = self.word.load(Ordering::Relaxed);
        self.word.store(w & ((1 << HOME_SHIFT) - 1), Ordering::Relaxed);
    }
}

impl<T> Default for Links<T> {
    fn default() -> Links<T> {
        Links::new()
    }
}

/// Returns the word of an item with this place that is in no Protect Queue.
#[inline]
pub(crate) fn word(level: u8, origin: Origin, key: Option<u64>) -> u32 {
    let movable = if matches!(origin, Origin::Wake) { 0 } else { MOVABLE };
    let keyed = if key.is_some() { KEYED } else { 0 };
    u32::from(level) & LEVEL | movable | keyed
}

/// Returns the bits of `word` for the Protect Queue of `vp`.
#[inline]
pub(crate) fn home(vp: usize) -> u32 {
    (vp as u32 + 1) << HOME_SHIFT
}

/// Returns the links of the item behind a pointer.
///
/// # Safety
/// `item` points to a live `T`.
#[inline]
pub(crate) unsafe fn links<'a, T: Node>(item: NonNull<T>) -> &'a Links<T> {
    // SAFETY: the caller guarantees that the item is live; the lifetime is used within one queue
    // operation only.
    unsafe { item.as_ref() }.links()
}

/// Returns the rank of a level. Rank 0 is served first.
#[inline]
pub(crate) const fn rank(level: u8) -> usize {
    63 - (level & 63) as usize
}

/// Returns the level of a rank in 0..=63.
#[inline]
pub(crate) const fn level(rank: usize) -> u8 {
    63 - (rank & 63) as u8
}

/// Returns the bits of the ranks of this level and above.
#[inline]
pub(crate) const fn ranks_from(level: u8) -> u64 {
    u64::MAX >> (level & 63)
}

/// Returns the bits of the ranks above this level.
#[inline]
pub(crate) const fn ranks_above(level: u8) -> u64 {
    ranks_from(level) >> 1
}
