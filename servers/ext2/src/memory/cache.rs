//! Block cache: blocks of files, directories and metadata, except bitmaps.
//!
//! A block being read is a separate state, on which other readers wait. No lock is held during disk
//! accesses. Modified blocks stay until a commit has written them
//! ([`commit`](crate::change::commit)); other blocks are evicted when the memory limit is exceeded.
//!
//! Blocks used repeatedly are kept. Blocks used once are evicted first while they occupy more than
//! a quarter of the memory. Otherwise a reader of one large file, or a thousand random readers,
//! would evict the blocks that other readers use constantly. The numbers of evicted blocks that
//! were used once are recorded for a while: a block that is read again is then kept. (After 2Q:
//! Johnson and Shasha, VLDB 1994.)

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use kumihimo::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use kumihimo::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use kumihimo_store::{Disk, Errno};

use crate::memory::complaint::Complaints;

/// Number of partitions of the table, each with its own lock.
const SHARDS: usize = 64;
/// Maximum number of candidates that an attempt to evict a block examines.
const LOOKS: usize = 64;
/// Maximum number of evicted blocks that a shard records. Each miss searches them all.
const GONE: usize = 2048;
/// Maximum number of bytes per disk access.
pub const AT_ONCE: usize = 1 << 20;

type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// Content of a block, which determines when a commit writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Contents of a file, or attributes: no other block is found through it.
    Data,
    /// Block numbers of a file.
    Indirect,
    /// Directory entries.
    Directory,
    /// Inodes.
    Table,
}

/// Modified block, as collected by a commit.
#[derive(Clone, Debug)]
pub struct Modified {
    /// Number of the block.
    pub block: u32,
    /// Content of the block.
    pub class: Class,
    /// Whether it was allocated since the last commit, so that nothing on the disk refers to it.
    pub fresh: bool,
    /// Data to be written.
    pub data: Arc<[u8]>,
}

/// State of a disk read, on which readers wait.
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
    /// Number of uses, up to `AGAIN`; for kept blocks, since they were last considered for
    /// eviction.
    uses: u8,
    /// Whether the block is in the queue `kept`.
    kept: bool,
    dirty: bool,
    fresh: bool,
    /// Whether a commit is writing the block, so that the disk has older data.
    writing: bool,
}

/// Number of uses that counts as repeated use.
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
    /// Number of buffers being read. They have no data yet and do not count as memory; otherwise a
    /// thousand readers that wait for the disk would evict the blocks of all others.
    reading: usize,
    /// Candidates for eviction, in order: blocks used once, and kept blocks. A queue may contain
    /// blocks that are evicted or are in the other queue.
    once: VecDeque<u32>,
    kept: VecDeque<u32>,
    /// Numbers of recently evicted blocks that were used once.
    gone: VecDeque<u32>,
    dirty: Vec<u32>,
}

/// Blocks of a disk.
pub struct Cache {
    disk: Box<dyn Disk>,
    complaints: Arc<Complaints>,
    block_size: usize,
    shards: Box<[Mutex<Shard>]>,
    /// Maximum number of buffers of a shard.
    room: usize,
    dirty: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    zeroes: Arc<[u8]>,
    hasher: foldhash::fast::FixedState,
}

/// Result of a look-up for a reader.
enum Found<R> {
    Read(R),
    Wait(Arc<Reading>),
    Absent,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    /// Creates the cache of `disk`, with about `bytes` of memory.
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

    /// Returns the disk.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Returns the numbers of blocks found in memory and of blocks read from the disk.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }

    /// Returns the number of bytes that wait for a commit.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.load(Relaxed) * self.block_size
    }

    /// Returns the number of bytes that may wait for a commit before writers must wait.
    pub fn dirty_limit(&self) -> usize {
        self.room * SHARDS * self.block_size / 2
    }

    fn shard(&self, block: u32) -> MutexGuard<'_, Shard> {
        // Hashed, so that neighbouring blocks lie in different shards.
        lock(&self.shards[self.hasher.hash_one(block) as usize % SHARDS])
    }

    /// Calls `take` with a block's data, under the lock of its shard; `take` should only copy the
    /// data.
    pub fn read<R>(&self, block: u32, take: impl FnMut(&[u8]) -> R) -> Result<R, Errno> {
        self.read_run(block, 1, take)
    }

    /// Reads like [`read`](Cache::read). If the disk is needed, reads `count` blocks from `block`
    /// on.
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

    /// Calls `take` with the data of `wanted` blocks from `first` on, each with its index, in
    /// order. If the disk is needed, reads all absent blocks in one access, up to `ahead` blocks
    /// beyond. Data is passed on as it arrives: it may be evicted at once if more is being read
    /// than there is room for.
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
                        // A block that was overwritten meanwhile is looked up again, and so are the
                        // blocks after it.
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

    /// Loads `count` blocks from `first` on into memory, neighbours in one access. Does not wait
    /// for blocks that other threads are reading.
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

    /// Marks absent blocks from `start` on as being read, up to `end`, the first block that is not
    /// absent, or the limit of one access. Returns their number.
    fn claim_run(&self, start: u32, end: u32, reading: &Arc<Reading>) -> u32 {
        let most = u32::try_from(AT_ONCE / self.block_size).unwrap_or(u32::MAX);
        let end = end.min(start.saturating_add(most));
        (start..end).take_while(|&block| self.claim(block, reading)).fold(0, |count, _| count + 1)
    }

    /// Marks a block as being read. Returns false if it is not absent.
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

    /// Reads the claimed blocks and passes them to `uses`, which returns whether a reader requested
    /// the block.
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
            // The block may have been overwritten completely in the meantime.
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

    /// Calls `change` to modify a block's data, under the lock of its shard.
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
                            // Copies the data if a commit shares it.
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

    /// Loads a block and keeps it in memory until a commit. Modifying it then cannot fail.
    pub fn hold(&self, block: u32, class: Class) -> Result<(), Errno> {
        self.modify(block, class, |_| ())
    }

    /// Replaces the whole block. `fresh` means that it was just allocated.
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

    /// Stores a block of zeroes that was just allocated.
    pub fn put_zeroes(&self, block: u32, class: Class) {
        self.put(block, class, Arc::clone(&self.zeroes), true);
    }

    /// Zeroes a whole block of a file without reading it.
    pub fn clear(&self, block: u32) {
        self.put(block, Class::Data, Arc::clone(&self.zeroes), false);
    }

    /// Drops a freed block. Returns whether it was allocated since the last commit.
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

    /// Returns whether a block was allocated since the last commit.
    pub fn is_fresh(&self, block: u32) -> bool {
        self.shard(block).buffers.get(&block).is_some_and(|buffer| buffer.fresh)
    }

    /// Returns whether a block was modified since the last commit.
    pub fn is_modified(&self, block: u32) -> bool {
        self.shard(block).buffers.get(&block).is_some_and(|buffer| buffer.dirty)
    }

    /// Returns the data of a block, if it is in memory and not modified since the last commit.
    pub fn peek_clean(&self, block: u32) -> Option<Arc<[u8]>> {
        let shard = self.shard(block);
        let buffer = shard.buffers.get(&block).filter(|buffer| !buffer.dirty)?;
        match &buffer.contents {
            Contents::Here(data) => Some(Arc::clone(data)),
            Contents::Reading(_) => None,
        }
    }

    /// Returns all modified blocks in ascending order. They count as unmodified from now on, but
    /// stay in memory until [`written`](Cache::written).
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

    /// Marks these blocks as written by a commit.
    pub fn written(&self, all: &[Modified]) {
        for modified in all {
            if let Some(buffer) = self.shard(modified.block).buffers.get_mut(&modified.block) {
                buffer.writing = false;
            }
        }
    }

    /// Marks these blocks as modified again after a failed commit, so that they stay readable.
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

    /// Evicts blocks of a shard that exceeds its limit. `read` was just read and is not evicted,
    /// because its reader needs it. A queue may contain a block twice.
    fn make_room(&self, shard: &mut Shard, read: Option<u32>) {
        for tries in 0..LOOKS {
            if shard.buffers.len() - shard.reading <= self.room {
                break;
            }
            // If all blocks used once are modified and cannot be evicted, kept blocks are.
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
