//! Allocation of microprocess IDs, and lookup by ID.
//!
//! An address space gets a number before its first microprocess begins ([`begin`]). An ID consists
//! of that number, the kind and the serial in the state word
//! ([`crate::microprocess::protocol::state`]). Without a number, IDs are valid within the process
//! only, and the runtime works nevertheless.

use std::sync::atomic::{AtomicPtr, Ordering};

use kumihimo_resource::chunks::Chunks;
use kumihimo_resource::id::{Kind, Serial};
use kumihimo_resource::serials::Serials;
use kumihimo_resource::table::{Table, table};

use crate::microprocess::id_prefix::PREFIX;
use crate::microprocess::record::Mp;

static SERIALS: Serials = Serials::new();
/// For each slot of serials, the record that has it, or had it last.
static RECORDS: Chunks<AtomicPtr<Mp>> = Chunks::new();

/// Sets the prefix of the IDs. Called before the first microprocess begins.
pub(crate) fn begin(table: &Table) {
    let prefix = table.id(Kind::MICROPROCESS, Serial::from_bits(0));
    PREFIX.store(prefix.bits().get(), Ordering::Relaxed);
}

/// Allocates the first serial of a new record, which is then [`made`]. `None` if all serials are
/// used up.
pub(crate) fn first() -> Option<Serial> {
    SERIALS.first(table().generations())
}

#[cold]
fn forget(table: &Table, kind: Kind, ended: Serial) {
    table.ended(table.id(kind, ended));
}

/// Registers the record `mp` under its serial.
#[cold]
pub(crate) fn made(mp: &'static Mp, serial: Serial) {
    // Release: a reader that finds the record reads its initialised contents.
    RECORDS.make(serial.slot()).store(std::ptr::from_ref(mp).cast_mut(), Ordering::Release);
}

/// Returns the microprocess with that ID. It lives, or its outcome was not taken yet. `None` if its
/// record was released, or if it never existed here. Takes no lock.
pub(crate) fn find(id: u64) -> Option<&'static Mp> {
    let serial = Serial::from_bits(id);
    let record = RECORDS.get(serial.slot())?.load(Ordering::Acquire);
    // SAFETY: null or a record, which lives for ever.
    unsafe { record.as_ref() }.filter(|mp| mp.id() == id)
}

/// Ends the current life of `mp` and the names that refer to it. Returns whether the record can be
/// reused. Masked.
#[inline]
pub(crate) fn close(table: &Table, mp: &'static Mp) -> bool {
    let ended = Serial::from_bits(mp.state.generation());
    for kind in [Kind::MICROPROCESS, Kind::STACK, Kind::SHARE, Kind::TIMER] {
        if table.has_names(kind) {
            forget(table, kind, ended);
        }
    }
    let _held = table.enter_own(Kind::MICROPROCESS, &mp.claim);
    match SERIALS.next(ended, table.generations()) {
        Some(next) => {
            if next.slot() != ended.slot() {
                made(mp, next);
            }
            mp.state.release(next.bits());
            true
        }
        None => {
            mp.state.retire();
            false
        }
    }
}
