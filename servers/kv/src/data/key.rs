//! Keys and times.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; `FOREVER` for what does not expire.
pub type Time = u64;

/// Expiry of an entry that never expires.
pub const FOREVER: Time = Time::MAX;

/// Shards of a database: enough that microprocesses on some dozen virtual processors seldom
/// contend. A table that grows blocks a sixteenth of the keys.
pub(super) const SHARDS: usize = 16;

/// A key and its hash.
#[derive(Clone, Copy)]
pub struct Key<'k> {
    /// Its name.
    pub bytes: &'k [u8],
    /// Unpredictable to clients: the hasher is seeded at start.
    pub hash: u64,
}

impl Key<'_> {
    pub(super) fn shard(&self) -> usize {
        // Neither the bits that choose the bucket nor those that mark it.
        (self.hash >> 40) as usize % SHARDS
    }
}

/// Milliseconds since 1970.
pub fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as Time)
}
