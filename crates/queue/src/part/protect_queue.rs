//! The Protect Queue: what a VP keeps to itself.
//!
//! Sixty-four levels; each is an intrusive first-in first-out list and, once an item with a key was
//! put there, a binary heap before it. One bitmap word finds the highest level. Only the owner
//! touches it: no atomics but the relaxed word in each item that says whose it is.

use alloc::{boxed::Box, vec::Vec};
use core::ptr::{NonNull, null_mut};

use crate::loom::Ordering;
use crate::node::{self, LEVELS, Node, Origin, Place, links};

struct List<T> {
    head: *mut T,
    tail: *mut T,
}

struct Entry<T> {
    key: u64,
    // Stability: order of arrival; `front` counts downwards.
    seq: i64,
    item: NonNull<T>,
}

impl<T> Entry<T> {
    fn before(&self, other: &Entry<T>) -> bool {
        (self.key, self.seq) < (other.key, other.seq)
    }
}

/// Owner-only run queue of one VP.
pub struct ProtectQueue<T: Node> {
    /// Bit r: the level of rank r has an item. Ranks count downwards from the highest level, since
    /// the lowest set bit is found faster than the highest (`tzcnt` runs, as `bsf`, on every
    /// x86-64; `lzcnt` has to be compiled for).
    ranks: u64,
    /// Bit r: its heap has an item.
    keyed: u64,
    len: usize,
    home: u32,
    vp: usize,
    back: i64,
    front: i64,
    /// By rank.
    lists: [List<T>; LEVELS],
    /// By rank; made when the first item with a key arrives.
    heaps: Option<Box<[Vec<Entry<T>>; LEVELS]>>,
}

impl<T: Node> ProtectQueue<T> {
    /// An empty queue, owned by VP `vp`.
    pub fn new(vp: usize) -> ProtectQueue<T> {
        ProtectQueue {
            ranks: 0,
            keyed: 0,
            len: 0,
            home: node::home(vp),
            vp,
            back: 0,
            front: -1,
            lists: [const { List { head: null_mut(), tail: null_mut() } }; LEVELS],
            heaps: None,
        }
    }

    /// Items in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranks == 0
    }

    /// Bit n is set if level n has an item.
    #[inline]
    pub fn levels(&self) -> u64 {
        self.ranks.reverse_bits()
    }

    /// Bit r is set if the level of rank r, `63 - r`, has an item.
    #[inline]
    pub(crate) fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Items on one level. Walks the level: no count is kept on the way of every push and pop for
    /// the few that ask.
    pub fn level_len(&self, level: u8) -> usize {
        let rank = node::rank(level);
        let mut n = self.heaps.as_ref().map_or(0, |h| h[rank].len());
        let mut at = self.lists[rank].head;
        while let Some(item) = NonNull::new(at) {
            n += 1;
            // SAFETY: items of the list are live and ours.
            at = unsafe { links(item) }.next.get();
        }
        n
    }

    /// The highest level that has an item.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        (self.ranks != 0).then(|| node::level(self.ranks.trailing_zeros() as usize))
    }

    /// The lowest level that has an item.
    #[inline]
    pub fn lowest(&self) -> Option<u8> {
        (self.ranks != 0).then(|| self.ranks.leading_zeros() as u8)
    }

    /// Queues an item.
    ///
    /// # Safety
    /// `item` is live, the caller holds it, and it is in no queue.
    #[inline]
    pub unsafe fn push(&mut self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: live by the caller's promise.
        let l = unsafe { links(item) };
        l.word.store(node::word(place.level, origin, place.key) | self.home, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { self.insert(item, place) }
    }

    /// Queues an item that came from another VP, by the place and origin that it still carries.
    ///
    /// # Safety
    /// As `push`; and the item has been in a queue before.
    #[inline]
    pub(crate) unsafe fn adopt(&mut self, item: NonNull<T>, front: bool) {
        // SAFETY: live by the caller's promise.
        let l = unsafe { links(item) };
        let w = l.word.load(Ordering::Relaxed);
        let place = Place { front, ..l.place() };
        l.word.store(w | self.home, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { self.insert(item, place) }
    }

    #[inline]
    unsafe fn insert(&mut self, item: NonNull<T>, place: Place) {
        let rank = node::rank(place.level);
        self.len += 1;
        self.ranks |= 1 << rank;
        if let Some(key) = place.key {
            return self.insert_keyed(item, rank, key, place.front);
        }
        // SAFETY: live by the caller's promise.
        let l = unsafe { links(item) };
        let list = &mut self.lists[rank];
        let raw = item.as_ptr();
        if place.front {
            l.next.set(list.head);
            match NonNull::new(list.head) {
                // SAFETY: items of the list are live (contract of `Node`) and ours.
                Some(old) => unsafe { links(old) }.prev.set(raw),
                None => list.tail = raw,
            }
            list.head = raw;
        } else {
            l.next.set(null_mut());
            l.prev.set(list.tail);
            match NonNull::new(list.tail) {
                // SAFETY: items of the list are live (contract of `Node`) and ours.
                Some(old) => unsafe { links(old) }.next.set(raw),
                None => list.head = raw,
            }
            list.tail = raw;
        }
    }

    /// The first item of the highest level, if that level has no keys.
    #[inline]
    pub fn peek(&self) -> Option<NonNull<T>> {
        if self.ranks == 0 {
            return None;
        }
        NonNull::new(self.lists[self.ranks.trailing_zeros() as usize].head)
    }

    /// Takes the next item of the highest level.
    #[inline]
    pub fn pop(&mut self) -> Option<(NonNull<T>, u8)> {
        if self.ranks == 0 {
            return None;
        }
        let rank = self.ranks.trailing_zeros() as usize;
        let item = self.pop_level(rank);
        let level = node::level(rank);
        // What else the word says is for VPs that give away; the VP that runs the item places it
        // anew.
        // SAFETY: just taken out: live and ours.
        unsafe { links(item) }.word.store(u32::from(level), Ordering::Relaxed);
        Some((item, level))
    }

    /// Takes the next item of the highest level if that is at least `level`.
    #[inline]
    pub fn pop_at_least(&mut self, level: u8) -> Option<(NonNull<T>, u8)> {
        if self.ranks & node::ranks_from(level) == 0 {
            return None;
        }
        self.pop()
    }

    /// As `pop_at_least`, but the item keeps its place: for another VP's `adopt`.
    pub(crate) fn hand(&mut self, level: u8) -> Option<NonNull<T>> {
        if self.ranks & node::ranks_from(level) == 0 {
            return None;
        }
        let item = self.pop_level(self.ranks.trailing_zeros() as usize);
        // SAFETY: just taken out: live and ours.
        unsafe { links(item) }.leave_home();
        Some(item)
    }

    /// The level is not empty. The item's word still says that it is here.
    #[inline]
    fn pop_level(&mut self, rank: usize) -> NonNull<T> {
        let bit = 1u64 << rank;
        if self.keyed & bit != 0 {
            return self.pop_keyed(rank);
        }
        let list = &mut self.lists[rank];
        debug_assert!(!list.head.is_null());
        // SAFETY: the level's bit is set and its heap is empty, so its list has a head.
        let item = unsafe { NonNull::new_unchecked(list.head) };
        // SAFETY: items of the list are live and ours.
        let l = unsafe { links(item) };
        let next = l.next.get();
        list.head = next;
        self.len -= 1;
        // The new head's `prev` goes stale; nobody reads a head's `prev`, and its line stays
        // untouched.
        if next.is_null() {
            list.tail = null_mut();
            self.ranks &= !bit;
        }
        item
    }

    /// Whether it is in this queue.
    ///
    /// # Safety
    /// `item` is live. It may be anywhere.
    #[inline]
    pub(crate) unsafe fn holds(&self, item: NonNull<T>) -> bool {
        // SAFETY: live by the caller's promise; only the atomic word is read.
        unsafe { links(item) }.is_home(self.vp)
    }

    /// Takes one item out, wherever it stands. `false` if it is not in this queue (any more).
    ///
    /// # Safety
    /// `item` is live. It need not be in this queue.
    pub unsafe fn remove(&mut self, item: NonNull<T>) -> bool {
        // SAFETY: live by the caller's promise. Of an item that is elsewhere only the atomic word
        // is read.
        let l = unsafe { links(item) };
        if !l.is_home(self.vp) {
            return false;
        }
        let rank = node::rank(l.level());
        if l.keyed() {
            self.remove_index(rank, l.index.get() as usize);
        } else {
            self.unlink(rank, item);
        }
        true
    }

    /// The item is in the list of this level.
    fn unlink(&mut self, rank: usize, item: NonNull<T>) {
        if self.lists[rank].head == item.as_ptr() {
            let keyed = self.keyed;
            // The list's head, though a heap may stand before it.
            self.keyed &= !(1 << rank);
            let got = self.pop_level(rank);
            debug_assert_eq!(got, item);
            // SAFETY: live and ours.
            unsafe { links(got) }.leave_home();
            self.keyed = keyed;
            self.ranks |= keyed & 1 << rank;
            return;
        }
        // SAFETY: items of the list are live and ours.
        let l = unsafe { links(item) };
        let (prev, next) = (l.prev.get(), l.next.get());
        let list = &mut self.lists[rank];
        // SAFETY: not the head, so `prev` is valid: a live item of the list.
        unsafe { links(NonNull::new_unchecked(prev)) }.next.set(next);
        match NonNull::new(next) {
            // SAFETY: a live item of the list.
            Some(n) => unsafe { links(n) }.prev.set(prev),
            None => list.tail = prev,
        }
        self.len -= 1;
        l.leave_home();
    }

    /// Gives away up to `want` movable items of one level, those queued last, the oldest of them
    /// first. Looks at a bounded number of items, so a level full of woken ones costs little.
    /// Returns how many were given.
    ///
    /// `out` must accept every item.
    pub(crate) fn give(
        &mut self,
        level: u8,
        want: usize,
        mut out: impl FnMut(NonNull<T>),
    ) -> usize {
        /// Items looked at in vain before it stops: a hundred thousand woken ones, which all have
        /// to stay, must not be walked through.
        const PATIENCE: usize = 8;
        let rank = node::rank(level);
        let mut given = 0;
        // Plain items wait behind the keyed ones, so they go first.
        let mut at = self.lists[rank].tail;
        let head = self.lists[rank].head;
        let (mut seen, mut found) = (0, 0);
        let mut start = null_mut();
        while let Some(item) = NonNull::new(at) {
            // SAFETY: items of the list are live and ours.
            let l = unsafe { links(item) };
            if l.movable() {
                found += 1;
                start = at;
            }
            seen += 1;
            if found == want || seen - found == PATIENCE || at == head {
                break;
            }
            at = l.prev.get();
        }
        at = start;
        while let Some(item) = NonNull::new(at) {
            if given == found {
                break;
            }
            // SAFETY: items of the list are live and ours.
            let l = unsafe { links(item) };
            at = l.next.get();
            if l.movable() {
                self.unlink(rank, item);
                out(item);
                given += 1;
            }
        }
        // A heap's array ends in leaves: taking one of those moves nothing, and it is never the
        // next to run.
        let mut index = self.heaps.as_ref().map_or(0, |h| h[rank].len());
        let mut patience = want - given + PATIENCE;
        while given < want && index > 0 && patience > 0 {
            index -= 1;
            patience -= 1;
            let item = self.heaps.as_ref().map(|h| h[rank][index].item);
            let Some(item) = item else { break };
            // SAFETY: items of the heap are live and ours.
            if unsafe { links(item) }.movable() {
                self.remove_index(rank, index);
                out(item);
                given += 1;
            }
        }
        given
    }

    /// Takes the movable item of one level that is next to run, of the first few.
    fn give_first(&mut self, rank: usize) -> Option<NonNull<T>> {
        const PATIENCE: usize = 4;
        let heap = self.heaps.as_ref().map_or(0, |h| h[rank].len());
        for index in 0..heap.min(PATIENCE) {
            let item = self.heaps.as_ref().map(|h| h[rank][index].item)?;
            // SAFETY: items of the heap are live and ours.
            if unsafe { links(item) }.movable() {
                self.remove_index(rank, index);
                return Some(item);
            }
        }
        let mut at = self.lists[rank].head;
        for _ in 0..PATIENCE {
            let item = NonNull::new(at)?;
            // SAFETY: items of the list are live and ours.
            let l = unsafe { links(item) };
            if l.movable() {
                self.unlink(rank, item);
                return Some(item);
            }
            at = l.next.get();
        }
        None
    }

    /// Takes the movable item of the highest level that has one, among the first few of each of the
    /// first few levels. For an idle VP, which should run the most urgent one that waits.
    pub(crate) fn give_highest(&mut self) -> Option<NonNull<T>> {
        const LEVELS_SEEN: usize = 4;
        let mut bits = self.ranks;
        for _ in 0..LEVELS_SEEN {
            if bits == 0 {
                return None;
            }
            let rank = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if let Some(item) = self.give_first(rank) {
                return Some(item);
            }
        }
        None
    }

    /// The item that is next to run may leave, even if it was woken.
    pub(crate) fn loosen(&mut self) {
        if self.ranks == 0 {
            return;
        }
        let rank = self.ranks.trailing_zeros() as usize;
        let first = self.heaps.as_ref().and_then(|h| h[rank].first()).map(|entry| entry.item);
        if let Some(item) = first.or(NonNull::new(self.lists[rank].head)) {
            // SAFETY: items of lists and heaps are live and ours.
            unsafe { links(item) }.loosen();
        }
    }

    #[cold]
    fn insert_keyed(&mut self, item: NonNull<T>, rank: usize, key: u64, front: bool) {
        let seq = if front { &mut self.front } else { &mut self.back };
        let entry = Entry { key, seq: *seq, item };
        *seq += if front { -1 } else { 1 };
        // SAFETY: live by the promise of `insert`'s caller.
        unsafe { links(item) }.key.set(key);
        self.keyed |= 1 << rank;
        let heaps = self.heaps.get_or_insert_with(|| Box::new([const { Vec::new() }; LEVELS]));
        let heap = &mut heaps[rank];
        heap.push(entry);
        let last = heap.len() - 1;
        sift_up(heap, last);
    }

    #[cold]
    fn pop_keyed(&mut self, rank: usize) -> NonNull<T> {
        self.remove_index(rank, 0)
    }

    /// `index` is within the heap of `level`.
    fn remove_index(&mut self, rank: usize, index: usize) -> NonNull<T> {
        let heap = &mut self.heaps.as_mut().expect("a keyed bit implies heaps")[rank];
        let item = heap.swap_remove(index).item;
        if index < heap.len() {
            // The former last one may belong further up or further down.
            sift_down(heap, index);
            sift_up(heap, index);
        }
        self.len -= 1;
        if heap.is_empty() {
            self.keyed &= !(1 << rank);
            if self.lists[rank].head.is_null() {
                self.ranks &= !(1 << rank);
            }
        }
        // SAFETY: items of the heap are live and ours.
        unsafe { links(item) }.leave_home();
        item
    }
}

fn note<T: Node>(heap: &[Entry<T>], index: usize) {
    // SAFETY: items of the heap are live and its owner's.
    unsafe { links(heap[index].item) }.index.set(index as u32);
}

fn sift_up<T: Node>(heap: &mut [Entry<T>], mut index: usize) {
    while index > 0 {
        let parent = (index - 1) / 2;
        if !heap[index].before(&heap[parent]) {
            break;
        }
        heap.swap(index, parent);
        note(heap, index);
        index = parent;
    }
    note(heap, index);
}

fn sift_down<T: Node>(heap: &mut [Entry<T>], mut index: usize) {
    loop {
        let mut child = 2 * index + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && heap[child + 1].before(&heap[child]) {
            child += 1;
        }
        if !heap[child].before(&heap[index]) {
            break;
        }
        heap.swap(index, child);
        note(heap, index);
        index = child;
    }
    note(heap, index);
}
