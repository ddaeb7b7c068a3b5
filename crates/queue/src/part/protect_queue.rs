//! Protect Queue: the items that a VP keeps.
//!
//! The queue has 64 levels. Each is an intrusive first-in first-out list, and a binary heap before
//! it once an item with a key was queued. One bitmap finds the highest level. Only the owner
//! accesses the queue, so its only atomic is the relaxed word in each item, which identifies the
//! owner.

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
    // Order of arrival, for stability; items for the front count downwards.
    seq: i64,
    item: NonNull<T>,
}

impl<T> Entry<T> {
    fn before(&self, other: &Entry<T>) -> bool {
        (self.key, self.seq) < (other.key, other.seq)
    }
}

/// Run queue of one VP, accessed only by its owner.
pub struct ProtectQueue<T: Node> {
    /// Bit r: the level of rank r has an item. Ranks count downwards from the highest level,
    /// because the lowest set bit is found faster than the highest: `tzcnt` runs (as `bsf`) on
    /// every x86-64, but `lzcnt` needs a compiler flag.
    ranks: u64,
    /// Bit r: the heap of rank r has an item.
    keyed: u64,
    len: usize,
    home: u32,
    vp: usize,
    back: i64,
    front: i64,
    /// Indexed by rank.
    lists: [List<T>; LEVELS],
    /// Indexed by rank; created when the first item with a key arrives.
    heaps: Option<Box<[Vec<Entry<T>>; LEVELS]>>,
}

impl<T: Node> ProtectQueue<T> {
    /// Creates an empty queue, owned by VP `vp`.
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

    /// Returns the number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranks == 0
    }

    /// Returns a bitmap: bit n is set if level n has an item.
    #[inline]
    pub fn levels(&self) -> u64 {
        self.ranks.reverse_bits()
    }

    /// Returns a bitmap: bit r is set if the level of rank r, `63 - r`, has an item.
    #[inline]
    pub(crate) fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Returns the number of items on one level. Walks the level, because few callers need the
    /// number and a counter would slow every push and pop.
    pub fn level_len(&self, level: u8) -> usize {
        let rank = node::rank(level);
        let mut n = self.heaps.as_ref().map_or(0, |h| h[rank].len());
        let mut at = self.lists[rank].head;
        while let Some(item) = NonNull::new(at) {
            n += 1;
            // SAFETY: items of the list are live and belong to this queue.
            at = unsafe { links(item) }.next.get();
        }
        n
    }

    /// Returns the highest level that has an item.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        (self.ranks != 0).then(|| node::level(self.ranks.trailing_zeros() as usize))
    }

    /// Returns the lowest level that has an item.
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
        // SAFETY: the caller guarantees that the item is live.
        let l = unsafe { links(item) };
        l.word.store(node::word(place.level, origin, place.key) | self.home, Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { self.insert(item, place) }
    }

    /// Queues an item from another VP, at the place and with the origin that it still carries.
    ///
    /// # Safety
    /// Same requirements as `push`; the item has been in a queue before.
    #[inline]
    pub(crate) unsafe fn adopt(&mut self, item: NonNull<T>, front: bool) {
        // SAFETY: the caller guarantees that the item is live.
        let l = unsafe { links(item) };
        let w = l.word.load(Ordering::Relaxed);
        let place = Place { front, ..l.place() };
        l.word.store(w | self.home, Ordering::Relaxed);
        // SAFETY: upheld by the caller.
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
        // SAFETY: the caller guarantees that the item is live.
        let l = unsafe { links(item) };
        let list = &mut self.lists[rank];
        let raw = item.as_ptr();
        if place.front {
            l.next.set(list.head);
            match NonNull::new(list.head) {
                // SAFETY: items of the list are live (contract of `Node`) and belong to this queue.
                Some(old) => unsafe { links(old) }.prev.set(raw),
                None => list.tail = raw,
            }
            list.head = raw;
        } else {
            l.next.set(null_mut());
            l.prev.set(list.tail);
            match NonNull::new(list.tail) {
                // SAFETY: items of the list are live (contract of `Node`) and belong to this queue.
                Some(old) => unsafe { links(old) }.next.set(raw),
                None => list.head = raw,
            }
            list.tail = raw;
        }
    }

    /// Returns the first item in the list of the highest level, even if a keyed item precedes it.
    #[inline]
    pub fn peek(&self) -> Option<NonNull<T>> {
        if self.ranks == 0 {
            return None;
        }
        NonNull::new(self.lists[self.ranks.trailing_zeros() as usize].head)
    }

    /// Returns the smallest key on `level`; `None` if no item there has a key.
    pub(crate) fn first_key(&self, level: u8) -> Option<u64> {
        let heap = &self.heaps.as_ref()?[node::rank(level)];
        heap.first().map(|entry| entry.key)
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
        // The other bits of the word matter only while the item is queued. The VP that runs the
        // item stores a new place.
        // SAFETY: the item was just removed, so it is live and held by this VP.
        unsafe { links(item) }.word.store(u32::from(level), Ordering::Relaxed);
        Some((item, level))
    }

    /// Takes the next item of the highest level, if that is at least `level`.
    #[inline]
    pub fn pop_at_least(&mut self, level: u8) -> Option<(NonNull<T>, u8)> {
        if self.ranks & node::ranks_from(level) == 0 {
            return None;
        }
        self.pop()
    }

    /// Does the same as `pop_at_least`, but the item keeps its place for `adopt` on another VP.
    pub(crate) fn hand(&mut self, level: u8) -> Option<NonNull<T>> {
        if self.ranks & node::ranks_from(level) == 0 {
            return None;
        }
        let item = self.pop_level(self.ranks.trailing_zeros() as usize);
        // SAFETY: the item was just removed, so it is live and held by this VP.
        unsafe { links(item) }.leave_home();
        Some(item)
    }

    /// Removes the first item of a level, which must not be empty. The item's word still names this
    /// queue.
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
        // SAFETY: items of the list are live and belong to this queue.
        let l = unsafe { links(item) };
        let next = l.next.get();
        list.head = next;
        self.len -= 1;
        // The new head's `prev` becomes stale. No code reads a head's `prev`, and leaving it alone
        // avoids touching its cache line.
        if next.is_null() {
            list.tail = null_mut();
            self.ranks &= !bit;
        }
        item
    }

    /// Returns whether the item is in this queue.
    ///
    /// # Safety
    /// `item` is live. It need not be in this queue.
    #[inline]
    pub(crate) unsafe fn holds(&self, item: NonNull<T>) -> bool {
        // SAFETY: the caller guarantees that the item is live; only the atomic word is read.
        unsafe { links(item) }.is_home(self.vp)
    }

    /// Removes an item from any position. Returns `false` if it is not, or no longer, in this
    /// queue.
    ///
    /// # Safety
    /// `item` is live. It need not be in this queue.
    pub unsafe fn remove(&mut self, item: NonNull<T>) -> bool {
        // SAFETY: the caller guarantees that the item is live. Only the atomic word of an item in
        // another queue is read.
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

    /// Removes an item from the list of this level, which must contain it.
    fn unlink(&mut self, rank: usize, item: NonNull<T>) {
        if self.lists[rank].head == item.as_ptr() {
            let keyed = self.keyed;
            // Pop the list's head even if a heap precedes it.
            self.keyed &= !(1 << rank);
            let got = self.pop_level(rank);
            debug_assert_eq!(got, item);
            // SAFETY: the item is live and held by this VP.
            unsafe { links(got) }.leave_home();
            self.keyed = keyed;
            self.ranks |= keyed & 1 << rank;
            return;
        }
        // SAFETY: items of the list are live and belong to this queue.
        let l = unsafe { links(item) };
        let (prev, next) = (l.prev.get(), l.next.get());
        let list = &mut self.lists[rank];
        // SAFETY: the item is not the head, so `prev` is valid and points to a live item of the
        // list.
        unsafe { links(NonNull::new_unchecked(prev)) }.next.set(next);
        match NonNull::new(next) {
            // SAFETY: a live item of the list.
            Some(n) => unsafe { links(n) }.prev.set(prev),
            None => list.tail = prev,
        }
        self.len -= 1;
        l.leave_home();
    }

    /// Gives away up to `want` movable items of one level: the last ones queued, oldest first.
    /// Returns how many it gave. Examines a bounded number of items, so a level full of woken items
    /// costs little.
    ///
    /// `out` must accept every item.
    pub(crate) fn give(
        &mut self,
        level: u8,
        want: usize,
        mut out: impl FnMut(NonNull<T>),
    ) -> usize {
        /// Number of immovable items after which the search stops, so that a hundred thousand woken
        /// items, all of which stay, are not walked.
        const PATIENCE: usize = 8;
        let rank = node::rank(level);
        let mut given = 0;
        // Items without a key run after the keyed ones, so they leave first.
        let mut at = self.lists[rank].tail;
        let head = self.lists[rank].head;
        let (mut seen, mut found) = (0, 0);
        let mut start = null_mut();
        while let Some(item) = NonNull::new(at) {
            // SAFETY: items of the list are live and belong to this queue.
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
            // SAFETY: items of the list are live and belong to this queue.
            let l = unsafe { links(item) };
            at = l.next.get();
            if l.movable() {
                self.unlink(rank, item);
                out(item);
                given += 1;
            }
        }
        // A heap's array ends with leaves. Removing a leaf moves no other item, and a leaf is never
        // the next item to run.
        let mut index = self.heaps.as_ref().map_or(0, |h| h[rank].len());
        let mut patience = want - given + PATIENCE;
        while given < want && index > 0 && patience > 0 {
            index -= 1;
            patience -= 1;
            let item = self.heaps.as_ref().map(|h| h[rank][index].item);
            let Some(item) = item else { break };
            // SAFETY: items of the heap are live and belong to this queue.
            if unsafe { links(item) }.movable() {
                self.remove_index(rank, index);
                out(item);
                given += 1;
            }
        }
        given
    }

    /// Takes the first movable item among the next few to run on one level.
    fn give_first(&mut self, rank: usize) -> Option<NonNull<T>> {
        const PATIENCE: usize = 4;
        let heap = self.heaps.as_ref().map_or(0, |h| h[rank].len());
        for index in 0..heap.min(PATIENCE) {
            let item = self.heaps.as_ref().map(|h| h[rank][index].item)?;
            // SAFETY: items of the heap are live and belong to this queue.
            if unsafe { links(item) }.movable() {
                self.remove_index(rank, index);
                return Some(item);
            }
        }
        let mut at = self.lists[rank].head;
        for _ in 0..PATIENCE {
            let item = NonNull::new(at)?;
            // SAFETY: items of the list are live and belong to this queue.
            let l = unsafe { links(item) };
            if l.movable() {
                self.unlink(rank, item);
                return Some(item);
            }
            at = l.next.get();
        }
        None
    }

    /// Takes the most urgent movable item, among the first few of each of the first few levels. An
    /// idle VP should run the most urgent waiting item.
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

    /// Allows the next item to leave, even if it was woken.
    pub(crate) fn loosen(&mut self) {
        if self.ranks == 0 {
            return;
        }
        let rank = self.ranks.trailing_zeros() as usize;
        let first = self.heaps.as_ref().and_then(|h| h[rank].first()).map(|entry| entry.item);
        if let Some(item) = first.or(NonNull::new(self.lists[rank].head)) {
            // SAFETY: items of lists and heaps are live and belong to this queue.
            unsafe { links(item) }.loosen();
        }
    }

    #[cold]
    fn insert_keyed(&mut self, item: NonNull<T>, rank: usize, key: u64, front: bool) {
        let seq = if front { &mut self.front } else { &mut self.back };
        let entry = Entry { key, seq: *seq, item };
        *seq += if front { -1 } else { 1 };
        // SAFETY: the caller of `insert` guarantees that the item is live.
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

    /// Removes the entry at `index`, which must be within the heap of this level.
    fn remove_index(&mut self, rank: usize, index: usize) -> NonNull<T> {
        let heap = &mut self.heaps.as_mut().expect("a keyed bit implies heaps")[rank];
        let item = heap.swap_remove(index).item;
        if index < heap.len() {
            // The former last entry may belong further up or further down.
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
        // SAFETY: items of the heap are live and belong to this queue.
        unsafe { links(item) }.leave_home();
        item
    }
}

fn note<T: Node>(heap: &[Entry<T>], index: usize) {
    // SAFETY: items of the heap are live and belong to the caller's queue.
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
