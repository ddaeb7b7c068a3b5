//! What an item carries to be in a queue, and where it asks to be placed.

use core::ptr::NonNull;

use crate::loom::{AtomicPtr, AtomicU32, Cell, Ordering};

/// Levels of a queue: 0 is the lowest, 63 the highest.
pub const LEVELS: usize = 64;

/// A type whose values can be queued.
///
/// # Safety
/// - `links` returns the same `Links` for the life of the value, and nobody but this crate
///   touches it.
/// - The value is not moved, freed or reused while it is in a queue.
/// - One *holder* at a time: the thread that got the item from a queue (or made it) holds it, and
///   only the holder puts it into a queue. Handing it to another kernel thread otherwise needs a
///   happens-before edge.
pub unsafe trait Node: Sized {
    /// The item's links.
    fn links(&self) -> &Links<Self>;
}

/// Where a queued item goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 0..=63, 63 is served first. Higher bits are ignored.
    pub level: u8,
    /// Within the level: items with a key go before those without, the smallest key first, equal
    /// keys in the order of their arrival.
    pub key: Option<u64>,
    /// Before the others of the level (with a key: before those of equal key).
    pub front: bool,
}

impl Place {
    /// The back of a level.
    #[inline]
    pub const fn back(level: u8) -> Place {
        Place { level, key: None, front: false }
    }

    /// The front of a level.
    #[inline]
    pub const fn front(level: u8) -> Place {
        Place { level, key: None, front: true }
    }

    /// A level ordered by key.
    #[inline]
    pub const fn keyed(level: u8, key: u64) -> Place {
        Place { level, key: Some(key), front: false }
    }
}

/// Why an item is runnable. It decides whether the item may leave its VP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Newly made: may leave.
    Spawn,
    /// Woken: never given away by `surplus`, since its waker, or its data, is here and it wants to
    /// run soon, and a VP cannot take back what it put into its Waiver Queue; unless
    /// [`loosen`](crate::Owner::loosen) says otherwise. (The `steal` design's thieves do not ask.)
    Wake,
    /// Ran, and gave way or was preempted: may leave.
    Yield,
}

// The word of an item: bits 0..6 level, 6 movable, 7 has a key, 16..32 VP + 1 whose Protect Queue
// holds it (0: none). Atomic because the *former* owner may ask "still mine?" while another VP has
// the item; relaxed because only the owner itself writes its own number, so reading one's own
// number is always current.
const LEVEL: u32 = 63;
const MOVABLE: u32 = 1 << 6;
const KEYED: u32 = 1 << 7;
const HOME_SHIFT: u32 = 16;

/// The part of an item that queues use.
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

// SAFETY: the cells are touched by the holder of the item, or by the owner of the queue that the
// item is in, only, and items pass from one to the next through release/acquire pairs (contract of
// `Node`); the rest is atomic. `T` itself is never reached through a `Links`, so no bound on it is
// needed here: handles that hand out `T`s are unsafe to build.
unsafe impl<T> Sync for Links<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Links<T> {}

impl<T> Links<T> {
    /// Links of an item that is in no queue.
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

    /// Links of an item that is in no queue.
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

    /// Level of the last place that the item was given. Any kernel thread may ask; the answer may
    /// be old at once.
    #[inline]
    pub fn level(&self) -> u8 {
        (self.word.load(Ordering::Relaxed) & LEVEL) as u8
    }

    /// The item queued behind this one, if it is in a list. Owner of the queue only.
    #[inline]
    pub fn peek_next(&self) -> Option<NonNull<T>> {
        NonNull::new(self.next.get())
    }

    /// Notes place and origin, in no Protect Queue yet. Holder only.
    #[cfg(all(feature = "lab", not(loom)))] // only `steal` needs it
    #[inline]
    pub(crate) fn set(&self, place: Place, origin: Origin) {
        self.word.store(word(place.level, origin, place.key), Ordering::Relaxed);
        if let Some(key) = place.key {
            self.key.set(key);
        }
    }

    /// The place noted last, at the back. Holder only.
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

/// The word of an item with this place, in no Protect Queue.
#[inline]
pub(crate) fn word(level: u8, origin: Origin, key: Option<u64>) -> u32 {
    let movable = if matches!(origin, Origin::Wake) { 0 } else { MOVABLE };
    let keyed = if key.is_some() { KEYED } else { 0 };
    u32::from(level) & LEVEL | movable | keyed
}

/// `word`'s bits for the Protect Queue of `vp`.
#[inline]
pub(crate) fn home(vp: usize) -> u32 {
    (vp as u32 + 1) << HOME_SHIFT
}

/// The links behind a pointer.
///
/// # Safety
/// `item` points to a live `T`.
#[inline]
pub(crate) unsafe fn links<'a, T: Node>(item: NonNull<T>) -> &'a Links<T> {
    // SAFETY: live by the caller's promise; the lifetime is used within one queue operation only.
    unsafe { item.as_ref() }.links()
}

/// 0 is served first.
#[inline]
pub(crate) const fn rank(level: u8) -> usize {
    63 - (level & 63) as usize
}

/// Of a rank, 0..=63.
#[inline]
pub(crate) const fn level(rank: usize) -> u8 {
    63 - (rank & 63) as u8
}

/// The bits of the ranks of this level and above.
#[inline]
pub(crate) const fn ranks_from(level: u8) -> u64 {
    u64::MAX >> (level & 63)
}

/// The bits of the ranks above this level.
#[inline]
pub(crate) const fn ranks_above(level: u8) -> u64 {
    ranks_from(level) >> 1
}
