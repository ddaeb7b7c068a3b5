//! The client's free cells: the one that was given back last is taken first, so that a lane of many
//! cells touches few pages.

use super::padded::Padded;
use crate::loom::{AtomicU32, AtomicU64, Ordering};

/// No cell.
const NONE: u32 = u32::MAX;

/// A stack of cells (R. K. Treiber, "Systems programming: coping with parallelism", IBM RJ
/// 5118, 1986). Lock-free. All cells are free at first.
pub(super) struct FreeList {
    /// Lower half: the top cell. Upper half: counts changes, so that a top which went and came back
    /// is not taken for one that stayed.
    top: Padded<AtomicU64>,
    /// Of each free cell: the one below.
    below: Box<[AtomicU32]>,
}

impl FreeList {
    pub(super) fn new(cells: u32) -> FreeList {
        let below = (0..cells)
            .map(|cell| AtomicU32::new(if cell + 1 < cells { cell + 1 } else { NONE }))
            .collect();
        FreeList { top: Padded(AtomicU64::new(0)), below }
    }

    #[inline]
    pub(super) fn take(&self) -> Option<u32> {
        // Acquire: what its last user did with it, and `below` as that one wrote it.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let cell = top as u32;
            if cell == NONE {
                return None;
            }
            // Another may have taken the cell meanwhile, and `below` may be of another time: then
            // the count has changed.
            let below = self.below[cell as usize].load(Ordering::Relaxed);
            match self.top.compare_exchange_weak(
                top,
                changed(top, below),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(cell),
                Err(now) => top = now,
            }
        }
    }

    /// Of a cell that is not free.
    #[inline]
    pub(super) fn give_back(&self, cell: u32) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            self.below[cell as usize].store(top as u32, Ordering::Relaxed);
            // Release: pairs with `take`. Threads that take another cell than this leave it a
            // release sequence: they read and modify.
            match self.top.compare_exchange_weak(
                top,
                changed(top, cell),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

#[inline]
fn changed(top: u64, cell: u32) -> u64 {
    (top >> 32).wrapping_add(1) << 32 | u64::from(cell)
}
