//! Identities of the microprocesses of this process: the origin of their ids.
//!
//! An address space has a number before its first microprocess begins ([`begin`]); ids are made of
//! that, of the kind and of the serial in the state word ([`crate::microprocess::state`]). Without
//! a number they are good within the process only, which is no reason not to run.

use std::sync::atomic::{AtomicPtr, Ordering};

use kumihimo_resource::chunks::Chunks;
use kumihimo_resource::id::{Kind, Serial};
use kumihimo_resource::serials::Serials;
use kumihimo_resource::table::{Table, table};

use crate::microprocess::id_prefix::PREFIX;
use crate::microprocess::record::Mp;

static SERIALS: Serials = Serials::new();
/// Whose a slot is, or was last.
static RECORDS: Chunks<AtomicPtr<Mp>> = Chunks::new();

/// Before the first microprocess begins.
pub(crate) fn begin(table: &Table) {
    let prefix = table.id(Kind::MICROPROCESS, Serial::from_bits(0));
    PREFIX.store(prefix.bits().get(), Ordering::Relaxed);
}

/// For a record that is about to be made, and is then [`made`]. `None`: there are no more.
pub(crate) fn first() -> Option<Serial> {
    SERIALS.first(table().generations())
}

#[cold]
fn forget(table: &Table, kind: Kind, ended: Serial) {
    table.ended(table.id(kind, ended));
}

/// The record is there, with that serial.
#[cold]
pub(crate) fn made(mp: &'static Mp, serial: Serial) {
    // Release: a reader that finds the record finds it written.
    RECORDS.make(serial.slot()).store(std::ptr::from_ref(mp).cast_mut(), Ordering::Release);
}

/// The microprocess of that id, living or with its outcome waiting; `None` if that has gone, or
/// never was here. Takes no lock.
pub(crate) fn find(id: u64) -> Option<&'static Mp> {
    let serial = Serial::from_bits(id);
    let record = RECORDS.get(serial.slot())?.load(Ordering::Acquire);
    // SAFETY: null or a record, which lives for ever.
    unsafe { record.as_ref() }.filter(|mp| mp.id() == id)
}

/// The life of `mp` has ended, and so have its names. True: the record has a next one. Masked.
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
