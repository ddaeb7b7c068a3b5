//! Releases the cores of a row, and its entries among the waiters.

use std::sync::atomic::Ordering;

use super::layout::BoardLayout;
use crate::row::{Cell, Reach, SleepMode};
use crate::slot::{BoardAccess, CORES, SlotProtocol, VpId};

impl BoardLayout {
    /// Empties a row: removes its VPs from all cells, cores and wait sets. The caller holds the
    /// row's lock.
    pub(crate) fn clear(&self, row: u16) {
        let record = &self.records[usize::from(row)];
        for word in [&record.pid, &record.vps, &record.overridden, &record.reason, &record.listener]
        {
            word.store(0, Ordering::Relaxed);
        }
        for word in [&record.started, &record.share, &record.sunk] {
            word.store(0, Ordering::Relaxed);
        }
        record.name.set("");
        record.head.take_posts();
        record.cells.iter().for_each(Cell::clear);
        for (core, slot) in self.slots.iter().enumerate().take(CORES) {
            slot.forget(row);
            let seen = slot.load();
            if seen.holder().is_some_and(|holder| holder.row == row) {
                SlotProtocol { slot, number: core as u16, places: &FutexWaker(self) }.evict(seen);
            }
        }
    }
}

/// Board access of a process that reclaims cores. It wakes a receiver through its cell's futex; a
/// receiver that sleeps on descriptors notices the core at its next timed check.
struct FutexWaker<'a>(&'a BoardLayout);

impl BoardAccess for FutexWaker<'_> {
    fn vps(&self, row: u16) -> u8 {
        self.0.records[usize::from(row)].vps()
    }

    fn cell(&self, place: VpId) -> &Cell {
        self.0.cell(place)
    }

    fn given(&self, place: VpId) {
        if self.cell(place).claim_wake_remote() == Some(SleepMode::Futex) {
            self.cell(place).wake(Reach::Shared);
        }
    }

    fn displaced(&self, _: VpId) {}
}
