//! Tests of a slot's protocol: loom models and single-threaded tests.

use super::*;
use std::sync::atomic::AtomicU64 as Noted;

/// Rows of one VP each; records the displaced VPs as one bit per row.
struct Rows {
    cells: Vec<Cell>,
    called: Vec<AtomicU64>,
    displaced: Noted,
}

impl Rows {
    fn new(rows: usize) -> Rows {
        Rows {
            cells: (0..rows).map(|_| Cell::new()).collect(),
            called: (0..rows).map(|_| AtomicU64::new(0)).collect(),
            displaced: Noted::new(0),
        }
    }
}

impl Rows {
    fn was_displaced(&self, who: u16) -> bool {
        self.displaced.load(std::sync::atomic::Ordering::Relaxed) & bit(who) != 0
    }
}

impl BoardAccess for Rows {
    fn vps(&self, row: u16) -> u8 {
        u8::from(usize::from(row) < self.cells.len())
    }

    fn cell(&self, place: VpId) -> &Cell {
        &self.cells[usize::from(place.row)]
    }

    fn given(&self, place: VpId) {
        if self.cell(place).claim_wake().is_some() {
            self.called[usize::from(place.row)].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn displaced(&self, place: VpId) {
        self.displaced.fetch_or(bit(place.row), std::sync::atomic::Ordering::Relaxed);
    }
}

fn row(row: u16) -> VpId {
    VpId { row, vp: 0 }
}

#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod plain;
