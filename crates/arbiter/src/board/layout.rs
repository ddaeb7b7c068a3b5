//! Layout of a board's file: a header, a slot a core, a row an address space, the recently
//! overridden ones. All of it atomic words, and all of it to be doubted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::name::Name;
use crate::board::overrides::{MAX_OVERRIDES, OverrideRecord};
use crate::row::{Cell, Head};
use crate::slot::{CELLS, CORES, ROWS, Slot, VpId};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"kumiboar");
/// Rises with every change of what stands in the file, and of what it means.
pub const VERSION: u32 = 3;
pub(crate) const SIZE: usize = size_of::<BoardLayout>();

#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) size: AtomicU32,
    /// How many address spaces live (low half), and how often that was counted (high half): see
    /// [`crate::member`].
    pub(crate) living: AtomicU64,
    /// The rule of the machine-wide feedback, packed ([`crate::rules::feedback::Rule`]).
    pub(crate) feedback: AtomicU64,
    /// How many holders were overridden, and whose process the last one was: (count << 32) | pid.
    pub(crate) overridden: AtomicU64,
}

impl Header {
    /// Says once more that this is a board, in case that somebody wrote over it: others could not
    /// come.
    pub(crate) fn rewrite_identity(&self) {
        self.size.store(SIZE as u32, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Relaxed);
    }
}

/// An address space's.
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) head: Head,
    /// As it says itself, in its own pid namespace; the lock knows better
    /// ([`crate::board::locks::Locks::pid`]).
    pub(crate) pid: AtomicU32,
    pub(crate) vps: AtomicU32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub(crate) started: AtomicU64,
    pub(crate) name: Name,
    /// How often a VP of it was overridden, and why last.
    pub(crate) overridden: AtomicU32,
    pub(crate) reason: AtomicU32,
    /// Where it receives notifications for its VPs; 0: nowhere.
    pub(crate) listener: AtomicU32,
    _room: AtomicU32,
    /// Copies for observers: its share, and how far it has sunk. The address space goes by its own.
    pub(crate) share: AtomicU64,
    pub(crate) sunk: AtomicU64,
    pub(crate) cells: [Cell; CELLS],
}

impl Record {
    /// At most [`CELLS`].
    pub(crate) fn vps(&self) -> u8 {
        self.vps.load(Ordering::Relaxed).min(CELLS as u32) as u8
    }
}

/// The file, from its first byte on. All zero is valid: nobody is there.
#[repr(C)]
pub(crate) struct BoardLayout {
    pub(crate) header: Header,
    pub(crate) slots: [Slot; CORES],
    pub(crate) records: [Record; ROWS],
    pub(crate) overrides: [OverrideRecord; MAX_OVERRIDES],
    /// Never read or written by a member: see [`crate::board::corruption`].
    pub(crate) canary: [AtomicU64; CANARY_SIZE / 8],
}

const CANARY_SIZE: usize = 128 << 10;
/// A page of the canary, too far from all else for the kernel to map it beside a page that is read
/// (fault-around maps 64 KiB: mm/memory.c, `do_fault_around`).
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
    /// `place` is in range: [`crate::slot`] lets no other one through.
    pub(crate) fn cell(&self, place: VpId) -> &Cell {
        &self.records[usize::from(place.row)].cells[usize::from(place.vp)]
    }
}
