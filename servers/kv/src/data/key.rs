//! Keys and times.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, or `FOREVER`.
pub type Time = u64;

/// Expiry of an entry that never expires.
pub const FOREVER: Time = Time::MAX;

/// Number of shards of a database: enough that microprocesses on a few dozen virtual processors
/// rarely contend. When a shard's table grows, only a sixteenth of the keys are blocked.
pub(super) const SHARDS: usize = 16;

/// A key and its hash.
#[derive(Clone, Copy)]
pub struct Key<'k> {
    /// Name of the key.
    pub bytes: &'k [u8],
    /// Hash with a random seed per process, so that clients cannot predict collisions.
    pub hash: u64,
}

impl Key<'_> {
    pub(super) fn shard(&self) -> usize {
        // Bits that the hash table uses neither for the bucket nor for its tag.
        (self.hash >> 40) as usize % SHARDS
    }
}

/// Current time in milliseconds since 1970.
pub fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as Time)
}
