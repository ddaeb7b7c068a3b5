//! Gives back what a row held: its cores, its places among the waiters.

use std::sync::atomic::Ordering;

use super::layout::BoardLayout;
use crate::row::{Cell, Reach, SleepMode};
use crate::slot::{BoardAccess, CORES, SlotProtocol, VpId};

impl BoardLayout {
    /// For the holder of the lock of a row: no VP of it is in the row, holds a core, or waits for
    /// one.
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

/// For a process that gives cores back: the receiver is called by its word; one that waits for
/// descriptors looks by itself in time.
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
