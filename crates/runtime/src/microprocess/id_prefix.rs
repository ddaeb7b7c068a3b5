//! The part that all ids of this process's microprocesses have in common.

use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_resource::id::{Id, Kind, Location, Serial};

/// Of an address space without a number.
const NOWHERE: u64 =
    Id::new(Location::NOWHERE, Kind::MICROPROCESS, Serial::from_bits(0)).bits().get();

/// What the id of each microprocess begins with; the rest is the serial in its state word. Stored
/// once, before there are any.
pub(crate) static PREFIX: AtomicU64 = AtomicU64::new(NOWHERE);

/// The id of the microprocess of that serial. Async-signal-safe.
#[inline]
pub(crate) fn id(generation: u64) -> u64 {
    PREFIX.load(Ordering::Relaxed) | generation
}
