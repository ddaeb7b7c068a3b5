//! The databases: each a row of shards, chosen by a key's hash. What concerns several keys locks
//! their shards in order, so it happens at once.

use std::hash::BuildHasher;

use kumihimo::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::key::{Key, SHARDS, Time};
use super::shard::{Entry, Shard};
use super::shared::Shared;

/// How many databases there are, as Redis has them by default.
pub const DATABASES: usize = 16;

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
        mut each: impl FnMut(&Entry),
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
