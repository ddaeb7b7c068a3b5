//! Regions that this side has passed, with the calls under way that name them.

use std::collections::HashMap;

use crate::lane::CellNo;
use crate::region::sealed::Region;

/// Regions that the other side has, so that they need not be passed again; the one that was used
/// last comes last.
#[derive(Default)]
pub(crate) struct RegionTable {
    of: Vec<PassedRegion>,
    next: u32,
    /// Numbers that calls under way name, by cell.
    by_cell: HashMap<CellNo, Vec<u32>>,
}

struct PassedRegion {
    region: Region,
    number: u32,
    /// Calls under way that name it: the other side may look for it.
    users: u32,
}

/// Most regions, and bytes, that are kept for both sides, unless more are in use.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 128 << 20;

impl RegionTable {
    /// The number of a region that the other side has. The request in `cell` names it from now on.
    pub(crate) fn find(&mut self, cell: CellNo, region: &Region) -> Option<u32> {
        let at = self.of.iter().position(|passed| passed.region.is_same(region))?;
        let mut found = self.of.remove(at);
        found.users += 1;
        let number = found.number;
        self.of.push(found);
        self.by_cell.entry(cell).or_default().push(number);
        Some(number)
    }

    /// A number for a new region, and that of the region to forget for it.
    pub(crate) fn make_room(&mut self) -> (u32, Option<u32>) {
        self.next = self.next.wrapping_add(1).max(1);
        let bytes: usize = self.of.iter().map(|passed| passed.region.len()).sum();
        let is_full = self.of.len() >= KEPT || bytes >= KEPT_BYTES;
        let unused = is_full.then(|| self.of.iter().position(|passed| passed.users == 0));
        (self.next, unused.flatten().map(|at| self.of.remove(at).number))
    }

    /// Adds a region that was passed. The request in `cell` names it from now on.
    pub(crate) fn keep(&mut self, cell: CellNo, region: &Region, number: u32) {
        self.of.push(PassedRegion { region: region.clone(), number, users: 1 });
        self.by_cell.entry(cell).or_default().push(number);
    }

    /// Releases the regions of the call in `cell`.
    pub(crate) fn release(&mut self, cell: CellNo) {
        for number in self.by_cell.remove(&cell).unwrap_or_default() {
            if let Some(passed) = self.of.iter_mut().find(|passed| passed.number == number) {
                passed.users -= 1;
            }
        }
    }
}
