//! The databases. Each consists of shards, and a key's hash chooses the shard. A command on several
//! keys locks all their shards in ascending order, so it takes effect atomically.

use std::hash::BuildHasher;

use kumihimo::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cleared::Cleared;
use super::entry::Entry;
use super::key::{Key, SHARDS, Time};
use super::shard::Shard;
use super::shared::Shared;

/// Number of databases, which is Redis's default.
pub const DATABASES: usize = 16;

/// A locked shard. Padded to a cache line, so that two locks never share one.
#[repr(align(128))]
struct Lane(Mutex<Shard>);

/// All databases.
pub struct Databases {
    lanes: Box<[Lane]>,
    hasher: foldhash::quality::RandomState,
    /// State shared by all shards.
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
    /// Hashes `bytes`.
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.hasher.hash_one(bytes) }
    }

    /// Locks the shard of `key` in database `number`.
    pub fn lock(&self, number: usize, key: &Key<'_>) -> MutexGuard<'_, Shard> {
        self.shard(number, key.shard())
    }

    fn shard(&self, number: usize, shard: usize) -> MutexGuard<'_, Shard> {
        // Every command checks its arguments before it changes data: a shard is consistent after a
        // panic.
        self.lanes[number * SHARDS + shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the shards of all `keys` in database `number`.
    pub fn lock_all<'k>(&self, number: usize, keys: impl Iterator<Item = &'k [u8]>) -> Locked<'_> {
        let mut wanted = [false; SHARDS];
        for key in keys {
            wanted[self.key(key).shard()] = true;
        }
        self.locked(number, wanted)
    }

    /// Locks all shards of database `number`.
    pub fn lock_whole(&self, number: usize) -> Locked<'_> {
        self.locked(number, [true; SHARDS])
    }

    fn locked(&self, number: usize, wanted: [bool; SHARDS]) -> Locked<'_> {
        // `from_fn` proceeds in ascending order, which is the lock order of all callers.
        Locked(std::array::from_fn(|i| wanted[i].then(|| self.shard(number, i))))
    }

    /// Removes all keys of all databases atomically, in a time that does not depend on their
    /// number. The caller frees them.
    pub fn clear(&self) -> Vec<Cleared> {
        let mut locked: Vec<_> = (0..DATABASES).map(|number| self.lock_whole(number)).collect();
        let all = locked.iter_mut().flat_map(|database| database.shards().map(Shard::clear));
        let all = all.filter(|one| !one.is_empty()).collect();
        if let Some(log) = self.shared.log.get() {
            log.append(0, &[b"FLUSHALL"]);
        }
        all
    }

    /// Continues a `SCAN` of database `number` at `cursor`: visits about `count` keys, fewer if
    /// `each` returns false, and passes the unexpired ones to `each`. Returns the next cursor, 0 at
    /// the end. One lock at a time is held, for `count` keys at most.
    pub fn scan(
        &self,
        number: usize,
        cursor: u64,
        count: usize,
        now: Time,
        mut each: impl FnMut(&Entry) -> bool,
    ) -> u64 {
        let (mut shard, mut from) =
            ((cursor % SHARDS as u64) as usize, (cursor / SHARDS as u64) as usize);
        let mut left = count;
        while shard < SHARDS {
            let next = self.shard(number, shard).scan(from, left, |entry| {
                left -= 1;
                let more = entry.expires <= now || each(entry);
                left = if more { left } else { 0 };
                more
            });
            if let Some(next) = next {
                return next as u64 * SHARDS as u64 + shard as u64;
            }
            (shard, from) = (shard + 1, 0);
            if left == 0 && shard < SHARDS {
                return shard as u64;
            }
        }
        0
    }

    /// Removes expired keys from all databases. Each lock is held for a few keys only.
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
    /// If the shard is not locked.
    pub fn of(&mut self, key: &Key<'_>) -> &mut Shard {
        self.0[key.shard()].as_mut().expect("the shards of all keys were locked")
    }

    /// All locked shards.
    pub fn shards(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.0.iter_mut().flatten().map(|guard| &mut **guard)
    }
}
