//! A key with its value, and the place of one in a shard.

use super::key::Time;
use super::value::Value;

/// A key with its value and its expiry.
pub struct Entry {
    /// Name of the key.
    pub key: Box<[u8]>,
    /// Contents. Changes go through [`Shard::change`](super::shard::Shard::change), which keeps the
    /// memory accounting correct.
    pub value: Value,
    /// Time of expiry, or `FOREVER`.
    pub expires: Time,
    /// Hash of the key.
    pub(super) hash: u64,
}

/// A place in the list of entries.
pub(super) enum Slot {
    Used(Entry),
    /// Number of the next free slot.
    Free(Option<u32>),
}
