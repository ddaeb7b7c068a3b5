//! The common prefix of the IDs of this process's microprocesses.

use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_resource::id::{Id, Kind, Location, Serial};

/// Prefix in an address space without a number.
const NOWHERE: u64 =
    Id::new(Location::NOWHERE, Kind::MICROPROCESS, Serial::from_bits(0)).bits().get();

/// Prefix of every microprocess ID; the rest is the serial in the state word. Stored once, before
/// the first microprocess exists.
pub(crate) static PREFIX: AtomicU64 = AtomicU64::new(NOWHERE);

/// Returns the ID of the microprocess with that serial. Async-signal-safe.
#[inline]
pub(crate) fn id(generation: u64) -> u64 {
    PREFIX.load(Ordering::Relaxed) | generation
}
