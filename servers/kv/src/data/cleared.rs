//! Entries that have been removed all at once, and that are freed in slices: to free them takes a
//! time that is proportional to their number. Until then they count as used memory.

use std::collections::BTreeSet;

use hashbrown::HashTable;
use kumihimo::sync::Arc;

use super::entry::Slot;
use super::key::Time;
use super::shared::Shared;
use super::value::{Value, chunk};

/// Entries and list items that are freed in a slice.
const SLICE: usize = 256;
/// Free places of the list of slots from which on their memory is returned.
const SPARE: usize = (64 << 10) / size_of::<Slot>();

/// The former contents of a shard.
pub struct Cleared {
    slots: Vec<Slot>,
    due: BTreeSet<(Time, u32)>,
    /// Has nothing to drop in it: its memory is freed at once, with the last slice.
    _table: HashTable<u32>,
    /// Bytes of the table and the slots in the memory accounting.
    counted: usize,
    shared: Arc<Shared>,
}

impl Cleared {
    pub(super) fn new(
        shared: Arc<Shared>,
        table: HashTable<u32>,
        slots: Vec<Slot>,
        due: BTreeSet<(Time, u32)>,
        counted: usize,
    ) -> Cleared {
        Cleared { slots, due, _table: table, counted, shared }
    }

    /// Returns whether nothing is left to free.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.due.is_empty()
    }

    /// Frees a slice.
    pub fn free_some(&mut self) {
        let mut left = SLICE;
        while left > 0 && self.due.pop_first().is_some() {
            left -= 1;
        }
        while left > 0
            && let Some(slot) = self.slots.last_mut()
        {
            if let Slot::Used(entry) = slot {
                let before = entry.value.footprint();
                if let Value::List(list) = &mut entry.value
                    && list.len() > left
                {
                    list.drop_last(left);
                    self.shared.count(before, entry.value.footprint());
                    return;
                }
                self.shared.count(chunk(entry.key.len()) + before, 0);
            }
            self.slots.pop();
            left -= 1;
        }
        if self.slots.capacity() - self.slots.len() > SPARE {
            self.slots.shrink_to_fit();
        }
    }
}

impl Drop for Cleared {
    fn drop(&mut self) {
        while !self.is_empty() {
            self.free_some();
        }
        self.shared.count(self.counted, 0);
    }
}

#[cfg(test)]
mod tests;
