//! The databases: each a row of shards, chosen by a key's hash. What concerns several keys locks
//! their shards in order, so it happens at once.

use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use kumihimo::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use kumihimo::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::log::Log;
use crate::shard::{Shard, Time};

/// How many databases there are, as Redis has them by default.
pub const DATABASES: usize = 16;

/// Enough that microprocesses on some dozen virtual processors seldom meet; a table that grows
/// holds up a sixteenth of the keys.
const SHARDS: usize = 16;

/// What all shards share.
#[derive(Default)]
pub struct Shared {
    memory: AtomicUsize,
    peak: AtomicUsize,
    /// Keys that have expired.
    pub expired: AtomicU64,
    /// Where changes are written down, once what was there is read.
    pub log: OnceLock<Log>,
}

impl Shared {
    /// Something takes `more` bytes now, after `less`.
    pub fn count(&self, less: usize, more: usize) {
        if more >= less {
            let now = self.memory.fetch_add(more - less, Relaxed) + (more - less);
            if now > self.peak.load(Relaxed) {
                self.peak.fetch_max(now, Relaxed);
            }
        } else {
            self.memory.fetch_sub(less - more, Relaxed);
        }
    }

    /// What keys, values, tables, buffers and the log's backlog take, in bytes.
    pub fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    /// The most that it was.
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }
}

/// A key, and where it belongs.
#[derive(Clone, Copy)]
pub struct Key<'k> {
    /// Its name.
    pub bytes: &'k [u8],
    /// Unpredictable to clients: the hasher is seeded at start.
    pub hash: u64,
}

impl Key<'_> {
    fn shard(&self) -> usize {
        // Neither the bits that choose the bucket nor those that mark it.
        (self.hash >> 40) as usize % SHARDS
    }
}

/// A row of shards. Line by line apart, so that locks do not share lines.
#[repr(align(128))]
struct Lane(Mutex<Shard>);

/// All databases.
pub struct Databases {
    lanes: Box<[Lane]>,
    hasher: foldhash::quality::RandomState,
    /// What all shards share.
    pub shared: Arc<Shared>,
}

impl Default for Databases {
    fn default() -> Databases {
        let shared = Arc::<Shared>::default();
        let lane = |i| Lane(Mutex::new(Shard::new(Arc::clone(&shared), (i / SHARDS) as u8)));
        Databases {
            lanes: (0..DATABASES * SHARDS).map(lane).collect(),
            hasher: Default::default(),
            shared,
        }
    }
}

impl Databases {
    /// Where `bytes` belong.
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.hasher.hash_one(bytes) }
    }

    /// The shard of `key` in database `number`.
    pub fn lock(&self, number: usize, key: &Key<'_>) -> MutexGuard<'_, Shard> {
        self.shard(number, key.shard())
    }

    fn shard(&self, number: usize, shard: usize) -> MutexGuard<'_, Shard> {
        // Commands check before they change: a panic in one leaves a shard whole.
        self.lanes[number * SHARDS + shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shards of all `keys` in database `number`, at once.
    pub fn lock_all<'k>(&self, number: usize, keys: impl Iterator<Item = &'k [u8]>) -> Locked<'_> {
        let mut wanted = [false; SHARDS];
        for key in keys {
            wanted[self.key(key).shard()] = true;
        }
        self.locked(number, wanted)
    }

    /// All shards of database `number`, at once.
    pub fn lock_whole(&self, number: usize) -> Locked<'_> {
        self.locked(number, [true; SHARDS])
    }

    fn locked(&self, number: usize, wanted: [bool; SHARDS]) -> Locked<'_> {
        // In rising order, as everybody does. (`from_fn` goes upwards.)
        Locked(std::array::from_fn(|i| wanted[i].then(|| self.shard(number, i))))
    }

    /// Removes all keys of all databases, at once.
    pub fn clear(&self) {
        let mut locked: Vec<_> = (0..DATABASES).map(|number| self.lock_whole(number)).collect();
        let all: Vec<_> =
            locked.iter_mut().flat_map(|database| database.shards().map(Shard::clear)).collect();
        if let Some(log) = self.shared.log.get() {
            log.append(0, &[b"FLUSHALL"]);
        }
        drop(locked);
        drop(all);
    }

    /// Goes on with a `SCAN` of database `number` at `cursor`: looks at about `count` keys, gives
    /// those that live to `each`. The next cursor; 0 at the end.
    pub fn scan(
        &self,
        number: usize,
        cursor: u64,
        count: usize,
        now: Time,
        mut each: impl FnMut(&crate::shard::Entry),
    ) -> u64 {
        let (mut shard, mut from) =
            ((cursor % SHARDS as u64) as usize, (cursor / SHARDS as u64) as usize);
        let mut left = count;
        while shard < SHARDS {
            let guard = self.shard(number, shard);
            let (entries, next) = guard.scan(from, left);
            let mut looked = 0;
            for entry in entries {
                looked += 1;
                if entry.expires > now {
                    each(entry);
                }
            }
            if let Some(next) = next {
                return next as u64 * SHARDS as u64 + shard as u64;
            }
            left = left.saturating_sub(looked);
            (shard, from) = (shard + 1, 0);
            if left == 0 && shard < SHARDS {
                return shard as u64;
            }
        }
        0
    }

    /// Removes what has expired from all databases, a few keys a lock.
    pub fn expire(&self, now: Time) {
        for lane in &self.lanes {
            while lane.0.lock().unwrap_or_else(PoisonError::into_inner).expire_due(now, 64) {}
        }
    }
}

/// Shards of one database, locked together.
pub struct Locked<'a>([Option<MutexGuard<'a, Shard>>; SHARDS]);

impl Locked<'_> {
    /// The shard of `key`.
    ///
    /// # Panics
    /// If it is not among those that were locked.
    pub fn of(&mut self, key: &Key<'_>) -> &mut Shard {
        self.0[key.shard()].as_mut().expect("the shards of all keys were locked")
    }

    /// All of them.
    pub fn shards(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.0.iter_mut().flatten().map(|guard| &mut **guard)
    }
}

/// Milliseconds since 1970.
pub fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as Time)
}
