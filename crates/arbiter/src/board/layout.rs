//! Layout of a board's file: a header, one slot per core, one row per address space, and records of
//! recent overrides. It consists of atomic words. Another process may have overwritten any of them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::name::Name;
use crate::board::overrides::{MAX_OVERRIDES, OverrideRecord};
use crate::row::{Cell, Head};
use crate::slot::{CELLS, CORES, ROWS, Slot, VpId};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"kumiboar");
/// Version of the layout. Increases with every change of the file's layout or of its meaning.
pub const VERSION: u32 = 3;
pub(crate) const SIZE: usize = size_of::<BoardLayout>();

#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) size: AtomicU32,
    /// Number of living address spaces (low half) and a serial of the count (high half); see
    /// [`crate::member`].
    pub(crate) living: AtomicU64,
    /// Rule of the machine-wide feedback, packed ([`crate::rules::feedback::Rule`]).
    pub(crate) feedback: AtomicU64,
    /// Number of overridden holders, and the pid of the last: (count << 32) | pid.
    pub(crate) overridden: AtomicU64,
}

impl Header {
    /// Writes magic number, version and size again. Otherwise no process could join after another
    /// process has overwritten them.
    pub(crate) fn rewrite_identity(&self) {
        self.size.store(SIZE as u32, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Relaxed);
    }
}

/// Record of an address space: its row on the board.
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) head: Head,
    /// Pid that the process wrote, in its own pid namespace. The lock yields a more reliable pid
    /// ([`crate::board::locks::Locks::pid`]).
    pub(crate) pid: AtomicU32,
    pub(crate) vps: AtomicU32,
    /// Time of joining, CLOCK_MONOTONIC in nanoseconds.
    pub(crate) started: AtomicU64,
    pub(crate) name: Name,
    /// How often a VP of the address space was overridden. `reason` holds the last reason.
    pub(crate) overridden: AtomicU32,
    pub(crate) reason: AtomicU32,
    /// Where the address space receives notifications for its VPs; 0 if nowhere.
    pub(crate) listener: AtomicU32,
    _room: AtomicU32,
    /// Copies for observers of the share and the feedback depth. The address space itself uses
    /// private originals.
    pub(crate) share: AtomicU64,
    pub(crate) sunk: AtomicU64,
    pub(crate) cells: [Cell; CELLS],
}

impl Record {
    /// Number of VPs, at most [`CELLS`].
    pub(crate) fn vps(&self) -> u8 {
        self.vps.load(Ordering::Relaxed).min(CELLS as u32) as u8
    }
}

/// Content of the file from its first byte. All zeroes are valid and mean an empty board.
#[repr(C)]
pub(crate) struct BoardLayout {
    pub(crate) header: Header,
    pub(crate) slots: [Slot; CORES],
    pub(crate) records: [Record; ROWS],
    pub(crate) overrides: [OverrideRecord; MAX_OVERRIDES],
    /// Reserved: never read or written by a member; see [`crate::board::corruption`].
    pub(crate) canary: [AtomicU64; CANARY_SIZE / 8],
}

const CANARY_SIZE: usize = 128 << 10;
/// A page of the canary that is too far from all other data for the kernel to map it together with
/// a page that is read. Fault-around maps 64 KiB (mm/memory.c, `do_fault_around`).
pub(crate) const CANARY_PAGE: usize =
    (std::mem::offset_of!(BoardLayout, canary) + CANARY_SIZE / 2).next_multiple_of(PAGE);
pub(crate) const PAGE: usize = 4096;

const _: () = {
    assert!(CANARY_PAGE + PAGE <= SIZE);
    assert!(size_of::<OverrideRecord>() == 64);
    assert!(size_of::<Header>() == 64);
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<Cell>() == 64);
    assert!(size_of::<Record>() == 192 + 64 * CELLS);
    assert!(SIZE < 2 << 20);
};

impl BoardLayout {
    /// Returns the cell of `place`, which must be in range; [`crate::slot`] only produces such
    /// places.
    pub(crate) fn cell(&self, place: VpId) -> &Cell {
        &self.records[usize::from(place.row)].cells[usize::from(place.vp)]
    }
}
