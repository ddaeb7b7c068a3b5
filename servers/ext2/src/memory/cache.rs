//! Blocks in memory: of files, directories and all else but inode and block bitmaps.
//!
//! A block that is being read is a state of its own, on which other readers wait; no lock is held
//! while the disk works. Blocks that were modified stay until a commit has written them
//! ([`commit`](crate::change::commit)); others make room when there are more than the memory
//! allows.
//!
//! What was used again is kept, and what was used once makes room for it, in a quarter of the
//! memory: else a reader of one large file, or a thousand random readers, would take from all
//! others what they use all the time, and then each use of it waits for the disk. What was used
//! once and is gone is remembered for a while by its number: a reader that comes for it again finds
//! it kept. (After Johnson and Shasha's 2Q, VLDB 1994.)

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use kumihimo::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use kumihimo::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use kumihimo_store::{Disk, Errno};

use crate::memory::complaint::Complaints;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 64;
/// Blocks that are asked at most, each time that there is to be room for one.
const LOOKS: usize = 64;
/// Blocks that are gone, of which a shard knows at most: they are gone through at each miss.
const GONE: usize = 2048;
/// Bytes that are read or written at once at most.
pub const AT_ONCE: usize = 1 << 20;

type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// What a block holds: it decides when a commit writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Contents of a file, or attributes: nothing is found through it.
    Data,
    /// Numbers of a file's blocks.
    Indirect,
    /// Names.
    Directory,
    /// Inodes.
    Table,
}

/// A modified block as a commit takes it.
#[derive(Clone, Debug)]
pub struct Modified {
    /// Which.
    pub block: u32,
    /// What it holds.
    pub class: Class,
    /// Allocated since the last commit: nothing on the disk leads there.
    pub fresh: bool,
    /// What is to be written.
    pub data: Arc<[u8]>,
}

/// A block being read.
#[derive(Default)]
struct Reading {
    over: Mutex<Option<Result<(), Errno>>>,
    changed: Condvar,
}

enum Contents {
    Here(Arc<[u8]>),
    Reading(Arc<Reading>),
}

struct Buffer {
    contents: Contents,
    class: Class,
    /// How often it was used, up to `AGAIN`; of those that are kept, since the last look for room.
    uses: u8,
    /// In which queue it is.
    kept: bool,
    dirty: bool,
    fresh: bool,
    /// A commit is about to write it: the disk has something older.
    writing: bool,
}

/// It was used again.
const AGAIN: u8 = 2;

impl Buffer {
    fn new(contents: Contents, class: Class) -> Buffer {
        Buffer { contents, class, uses: 0, kept: false, dirty: false, fresh: false, writing: false }
    }

    fn is_used(&mut self) {
        self.uses = AGAIN.min(self.uses + 1);
    }
}

#[derive(Default)]
struct Shard {
    buffers: Map<u32, Buffer>,
    /// How many of them are being read. They have no bytes yet, and take no room: a thousand
    /// readers that wait for the disk would have all others wait for it as well.
    reading: usize,
    /// The next candidates to make room, of those used once and of those that are kept; may name
    /// blocks that are gone, or are in the other one.
    once: VecDeque<u32>,
    kept: VecDeque<u32>,
    /// Numbers of those used once that made room last.
    gone: VecDeque<u32>,
    dirty: Vec<u32>,
}

/// The blocks of a disk.
pub struct Cache {
    disk: Box<dyn Disk>,
    complaints: Arc<Complaints>,
    block_size: usize,
    shards: Box<[Mutex<Shard>]>,
    /// Buffers that a shard may have.
    room: usize,
    dirty: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    zeroes: Arc<[u8]>,
    hasher: foldhash::fast::FixedState,
}

/// What an absent block is to its reader.
enum Found<R> {
    Read(R),
    Wait(Arc<Reading>),
    Absent,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    /// Of `disk`, with `bytes` of memory or a little more.
    pub fn new(
        disk: Box<dyn Disk>,
        block_size: usize,
        bytes: usize,
        complaints: Arc<Complaints>,
    ) -> Cache {
        Cache {
            disk,
            complaints,
            block_size,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            room: (bytes / block_size / SHARDS).max(4),
            dirty: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            zeroes: vec![0; block_size].into(),
            hasher: foldhash::fast::FixedState::default(),
        }
    }

    /// The disk.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Blocks found in memory, and blocks that were read from the disk.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }

    /// Bytes that wait for a commit.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.load(Relaxed) * self.block_size
    }

    /// Bytes that may wait for a commit, before writers have to wait.
    pub fn dirty_limit(&self) -> usize {
        self.room * SHARDS * self.block_size / 2
    }

    fn shard(&self, block: u32) -> MutexGuard<'_, Shard> {
        // Neighbours lie in different shards.
        lock(&self.shards[self.hasher.hash_one(block) as usize % SHARDS])
    }

    /// Gives `take` a block's bytes, under the lock of its shard: it copies and goes.
    pub fn read<R>(&self, block: u32, take: impl FnMut(&[u8]) -> R) -> Result<R, Errno> {
        self.read_run(block, 1, take)
    }

    /// As [`read`](Cache::read); if the disk is needed for it, `count` blocks are read, `block` and
    /// what follows it.
    pub fn read_run<R>(
        &self,
        block: u32,
        count: u32,
        mut take: impl FnMut(&[u8]) -> R,
    ) -> Result<R, Errno> {
        let mut taken = None;
        self.read_range(block, 1, count.saturating_sub(1), |_, bytes| taken = Some(take(bytes)))?;
        taken.ok_or(Errno::IO)
    }

    /// Gives `take` the bytes of `wanted` blocks from `first` on, each with its index, in order.
    /// Where the disk is needed, as much is read at once as is absent, up to `ahead` blocks beyond.
    /// What was read is given as it comes: it may be gone from memory at once, where more is on its
    /// way than there is room for.
    pub fn read_range(
        &self,
        first: u32,
        wanted: u32,
        ahead: u32,
        mut take: impl FnMut(u32, &[u8]),
    ) -> Result<(), Errno> {
        let mut index = 0;
        while index < wanted {
            let found = {
                let mut shard = self.shard(first + index);
                match shard.buffers.get_mut(&(first + index)) {
                    Some(buffer) => match &buffer.contents {
                        Contents::Here(data) => {
                            take(index, data);
                            buffer.is_used();
                            Found::Read(())
                        }
                        Contents::Reading(reading) => Found::Wait(Arc::clone(reading)),
                    },
                    None => Found::Absent,
                }
            };
            match found {
                Found::Read(()) => {
                    self.hits.fetch_add(1, Relaxed);
                    index += 1;
                }
                Found::Wait(reading) => wait(&reading)?,
                Found::Absent => {
                    let reading = Arc::new(Reading::default());
                    let count = self.claim_run(first + index, first + wanted + ahead, &reading);
                    let (from, mut next) = (index, index);
                    self.fill(first + index, count, &reading, |at, data| {
                        // One that was overwritten meanwhile is looked up again, and what follows
                        // it with it.
                        let is_next = from + at == next && next < wanted;
                        if is_next {
                            take(next, data);
                            next += 1;
                        }
                        is_next
                    })?;
                    index = next;
                }
            }
        }
        Ok(())
    }

    /// Sees to it that `count` blocks from `first` on are in memory: those that are not are read,
    /// neighbours at once. Blocks that others are reading are not waited for.
    pub fn load(&self, first: u32, count: u32) -> Result<(), Errno> {
        let mut at = first;
        while at < first + count {
            let reading = Arc::new(Reading::default());
            let claimed = self.claim_run(at, first + count, &reading);
            self.fill(at, claimed, &reading, |_, _| false)?;
            at += claimed.max(1);
        }
        Ok(())
    }

    /// Announces that blocks from `start` on are being read: up to the first that is not absent, or
    /// `end`, or as many as are read at once.
    fn claim_run(&self, start: u32, end: u32, reading: &Arc<Reading>) -> u32 {
        let most = u32::try_from(AT_ONCE / self.block_size).unwrap_or(u32::MAX);
        let end = end.min(start.saturating_add(most));
        (start..end).take_while(|&block| self.claim(block, reading)).fold(0, |count, _| count + 1)
    }

    /// Announces that a block that is absent is being read; `false` if it is not absent.
    fn claim(&self, block: u32, reading: &Arc<Reading>) -> bool {
        let mut guard = self.shard(block);
        let shard = &mut *guard;
        let Entry::Vacant(place) = shard.buffers.entry(block) else { return false };
        let contents = Contents::Reading(Arc::clone(reading));
        let kept = shard.gone.contains(&block);
        place.insert(Buffer { kept, ..Buffer::new(contents, Class::Data) });
        shard.reading += 1;
        true
    }

    /// Reads what was claimed, and shows it to `uses`, which says whether it was what somebody
    /// wants.
    fn fill(
        &self,
        start: u32,
        count: u32,
        reading: &Arc<Reading>,
        mut uses: impl FnMut(u32, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        if count == 0 {
            return Ok(());
        }
        self.misses.fetch_add(u64::from(count), Relaxed);
        let mut bytes = vec![0; count as usize * self.block_size];
        let outcome = self
            .disk
            .read(u64::from(start) * self.block_size as u64, &mut bytes)
            .map_err(|error| {
                self.complaints
                    .say(format_args!("the disk cannot be read at block {start}: {error}"));
                Errno::IO
            });
        for (block, data) in (start..start + count).zip(bytes.chunks_exact(self.block_size)) {
            let mut guard = self.shard(block);
            let shard = &mut *guard;
            let Entry::Occupied(mut place) = shard.buffers.entry(block) else { continue };
            // It may have been overwritten as a whole meanwhile.
            if !matches!(&place.get().contents, Contents::Reading(of) if Arc::ptr_eq(of, reading)) {
                continue;
            }
            shard.reading -= 1;
            if outcome.is_ok() {
                place.get_mut().contents = Contents::Here(data.into());
                if uses(block - start, data) {
                    place.get_mut().is_used();
                }
                if place.get().kept { &mut shard.kept } else { &mut shard.once }.push_back(block);
                self.make_room(shard, Some(block));
            } else {
                place.remove();
            }
        }
        *lock(&reading.over) = Some(outcome);
        reading.changed.notify_all();
        outcome
    }

    /// Lets `change` modify a block's bytes, under the lock of its shard.
    pub fn modify<R>(
        &self,
        block: u32,
        class: Class,
        mut change: impl FnMut(&mut [u8]) -> R,
    ) -> Result<R, Errno> {
        loop {
            let found = {
                let mut guard = self.shard(block);
                let shard = &mut *guard;
                match shard.buffers.get_mut(&block) {
                    Some(buffer) => match &mut buffer.contents {
                        Contents::Here(data) => {
                            // A commit that holds the old contents keeps them.
                            let result = change(Arc::make_mut(data));
                            buffer.is_used();
                            buffer.class = class;
                            if !std::mem::replace(&mut buffer.dirty, true) {
                                shard.dirty.push(block);
                                self.dirty.fetch_add(1, Relaxed);
                            }
                            Found::Read(result)
                        }
                        Contents::Reading(reading) => Found::Wait(Arc::clone(reading)),
                    },
                    None => Found::Absent,
                }
            };
            match found {
                Found::Read(result) => return Ok(result),
                Found::Wait(reading) => wait(&reading)?,
                Found::Absent => self.load(block, 1)?,
            }
        }
    }

    /// Sees to it that a block that is going to be modified is in memory, and stays there until a
    /// commit: then modifying it cannot fail.
    pub fn hold(&self, block: u32, class: Class) -> Result<(), Errno> {
        self.modify(block, class, |_| ())
    }

    /// Replaces a block as a whole. `fresh`: it was just allocated.
    pub fn put(&self, block: u32, class: Class, data: Arc<[u8]>, fresh: bool) {
        let mut guard = self.shard(block);
        let shard = &mut *guard;
        let contents = Contents::Here(data);
        match shard.buffers.entry(block) {
            Entry::Occupied(mut place) => {
                let buffer = place.get_mut();
                if matches!(std::mem::replace(&mut buffer.contents, contents), Contents::Reading(_))
                {
                    shard.reading -= 1;
                }
                buffer.class = class;
                buffer.is_used();
                buffer.fresh |= fresh;
                if !std::mem::replace(&mut buffer.dirty, true) {
                    shard.dirty.push(block);
                    self.dirty.fetch_add(1, Relaxed);
                }
            }
            Entry::Vacant(place) => {
                place.insert(Buffer {
                    uses: 1,
                    dirty: true,
                    fresh,
                    ..Buffer::new(contents, class)
                });
                shard.dirty.push(block);
                self.dirty.fetch_add(1, Relaxed);
                shard.once.push_back(block);
                self.make_room(shard, None);
            }
        }
    }

    /// A block of zeroes, just allocated.
    pub fn put_zeroes(&self, block: u32, class: Class) {
        self.put(block, class, Arc::clone(&self.zeroes), true);
    }

    /// Zeroes a block of a file as a whole, without reading it.
    pub fn clear(&self, block: u32) {
        self.put(block, Class::Data, Arc::clone(&self.zeroes), false);
    }

    /// Drops a block that was freed. Whether it was allocated since the last commit.
    pub fn forget(&self, block: u32) -> bool {
        let mut shard = self.shard(block);
        let Some(buffer) = shard.buffers.remove(&block) else { return false };
        if matches!(buffer.contents, Contents::Reading(_)) {
            shard.reading -= 1;
        }
        drop(shard);
        if buffer.dirty {
            self.dirty.fetch_sub(1, Relaxed);
        }
        buffer.fresh
    }

    /// Whether a block was allocated since the last commit.
    pub fn is_fresh(&self, block: u32) -> bool {
        self.shard(block).buffers.get(&block).is_some_and(|buffer| buffer.fresh)
    }

    /// Whether a block was modified since the last commit.
    pub fn is_modified(&self, block: u32) -> bool {
        self.shard(block).buffers.get(&block).is_some_and(|buffer| buffer.dirty)
    }

    /// A block as the disk has it, if it is in memory and was not modified.
    pub fn peek_clean(&self, block: u32) -> Option<Arc<[u8]>> {
        let shard = self.shard(block);
        let buffer = shard.buffers.get(&block).filter(|buffer| !buffer.dirty)?;
        match &buffer.contents {
            Contents::Here(data) => Some(Arc::clone(data)),
            Contents::Reading(_) => None,
        }
    }

    /// All modified blocks, in the disk's order. They count as not modified from now on, but stay
    /// in memory until [`written`](Cache::written).
    pub fn snapshot(&self) -> Vec<Modified> {
        let mut all = Vec::with_capacity(self.dirty.load(Relaxed));
        for shard in &self.shards {
            let mut guard = lock(shard);
            let shard = &mut *guard;
            for block in shard.dirty.drain(..) {
                let Some(buffer) = shard.buffers.get_mut(&block).filter(|buffer| buffer.dirty)
                else {
                    continue;
                };
                let Contents::Here(data) = &buffer.contents else { continue };
                all.push(Modified {
                    block,
                    class: buffer.class,
                    fresh: buffer.fresh,
                    data: Arc::clone(data),
                });
                (buffer.dirty, buffer.fresh, buffer.writing) = (false, false, true);
                self.dirty.fetch_sub(1, Relaxed);
            }
        }
        all.sort_unstable_by_key(|modified| modified.block);
        all
    }

    /// A commit has written these.
    pub fn written(&self, all: &[Modified]) {
        for modified in all {
            if let Some(buffer) = self.shard(modified.block).buffers.get_mut(&modified.block) {
                buffer.writing = false;
            }
        }
    }

    /// A commit could not write these: they stay modified, for their readers.
    pub fn not_written(&self, all: &[Modified]) {
        for modified in all {
            let mut guard = self.shard(modified.block);
            let shard = &mut *guard;
            if let Some(buffer) = shard.buffers.get_mut(&modified.block) {
                buffer.writing = false;
                if !std::mem::replace(&mut buffer.dirty, true) {
                    shard.dirty.push(modified.block);
                    self.dirty.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// `read` was read just now, and stays whatever waits for a commit: its reader comes for it. A
    /// queue may name a block twice.
    fn make_room(&self, shard: &mut Shard, read: Option<u32>) {
        for tries in 0..LOOKS {
            if shard.buffers.len() - shard.reading <= self.room {
                break;
            }
            // Where none of those used once may go, all being modified, those that are kept have
            // to.
            let of_kept =
                !shard.kept.is_empty() && (shard.once.len() <= self.room / 4 || tries >= LOOKS / 2);
            let queue = if of_kept { &mut shard.kept } else { &mut shard.once };
            let Some(block) = queue.pop_front() else { return };
            let Entry::Occupied(mut place) = shard.buffers.entry(block) else { continue };
            let buffer = place.get_mut();
            if buffer.kept != of_kept {
                continue;
            }
            let here = matches!(buffer.contents, Contents::Here(_));
            if !here || buffer.dirty || buffer.writing || read == Some(block) {
                queue.push_back(block);
            } else if buffer.uses == AGAIN {
                (buffer.uses, buffer.kept) = (AGAIN - 1, true);
                shard.kept.push_back(block);
            } else {
                place.remove();
                if !of_kept {
                    shard.gone.truncate(self.room.min(GONE) - 1);
                    shard.gone.push_front(block);
                }
            }
        }
        if shard.once.len() + shard.kept.len() > 2 * shard.buffers.len() + 64 {
            shard.once.clear();
            shard.kept.clear();
            for (block, buffer) in &shard.buffers {
                if buffer.kept { &mut shard.kept } else { &mut shard.once }.push_back(*block);
            }
        }
    }
}

fn wait(reading: &Reading) -> Result<(), Errno> {
    let over = lock(&reading.over);
    let over = reading
        .changed
        .wait_while(over, |over| over.is_none())
        .unwrap_or_else(PoisonError::into_inner);
    over.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests;
