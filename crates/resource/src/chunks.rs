//! Growable array indexed by slot, whose elements never move.

use std::sync::OnceLock;

use crate::id::SLOTS;

/// Slots of the first chunk. Each later chunk has as many slots as all chunks before it.
const FIRST: u32 = 64;
const CHUNKS: usize = (SLOTS / FIRST).ilog2() as usize + 1;

/// One `T` per slot. Reading takes no lock and allocates nothing.
#[derive(Debug)]
pub struct Chunks<T>([OnceLock<Box<[T]>>; CHUNKS]);

impl<T> Default for Chunks<T> {
    fn default() -> Chunks<T> {
        Chunks::new()
    }
}

impl<T> Chunks<T> {
    /// Creates an empty array.
    #[must_use]
    pub const fn new() -> Chunks<T> {
        Chunks([const { OnceLock::new() }; CHUNKS])
    }

    /// Returns the chunk of a slot, and the index within that chunk.
    fn place(slot: u32) -> (usize, usize) {
        match slot / FIRST {
            0 => (0, slot as usize),
            n => {
                let chunk = n.ilog2() as usize + 1;
                (chunk, (slot - Self::len(chunk) as u32) as usize)
            }
        }
    }

    /// Returns the number of slots of a chunk.
    fn len(chunk: usize) -> usize {
        (FIRST << chunk.saturating_sub(1)) as usize
    }

    /// Returns the element of `slot`, or `None` if its chunk does not exist yet.
    ///
    /// # Panics
    /// If `slot` is not below [`SLOTS`].
    pub fn get(&self, slot: u32) -> Option<&T> {
        let (chunk, at) = Self::place(slot);
        Some(&self.0[chunk].get()?[at])
    }
}

impl<T: Default> Chunks<T> {
    /// Returns the element of `slot`. Creates its chunk, filled with default values, if necessary.
    ///
    /// # Panics
    /// If `slot` is not below [`SLOTS`].
    pub fn make(&self, slot: u32) -> &T {
        let (chunk, at) = Self::place(slot);
        &self.0[chunk].get_or_init(|| (0..Self::len(chunk)).map(|_| T::default()).collect())[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_place() {
        let mut expected = (0, 0);
        for slot in 0..SLOTS {
            assert_eq!(Chunks::<()>::place(slot), expected);
            expected = if expected.1 + 1 == Chunks::<()>::len(expected.0) {
                (expected.0 + 1, 0)
            } else {
                (expected.0, expected.1 + 1)
            };
        }
        assert_eq!(expected, (CHUNKS, 0));
    }

    #[test]
    fn slots_of_missing_chunks_are_absent() {
        let all = Chunks::<u32>::new();
        assert_eq!((all.get(0), all.get(SLOTS - 1)), (None, None));
        assert_eq!(*all.make(70), 0);
        assert_eq!(
            (all.get(63), all.get(64), all.get(127), all.get(128)),
            (None, Some(&0), Some(&0), None)
        );
    }
}
