//! An array by slot, which grows and is never moved.

use std::sync::OnceLock;

use crate::id::SLOTS;

/// Slots of the first chunk; each further one has as many as all before it.
const FIRST: u32 = 64;
const CHUNKS: usize = (SLOTS / FIRST).ilog2() as usize + 1;

/// One `T` a slot. To read takes no lock and allocates nothing.
#[derive(Debug)]
pub struct Chunks<T>([OnceLock<Box<[T]>>; CHUNKS]);

impl<T> Default for Chunks<T> {
    fn default() -> Chunks<T> {
        Chunks::new()
    }
}

impl<T> Chunks<T> {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Chunks<T> {
        Chunks([const { OnceLock::new() }; CHUNKS])
    }

    /// Chunk and place in it.
    fn place(slot: u32) -> (usize, usize) {
        match slot / FIRST {
            0 => (0, slot as usize),
            n => {
                let chunk = n.ilog2() as usize + 1;
                (chunk, (slot - Self::len(chunk) as u32) as usize)
            }
        }
    }

    /// How many a chunk has: from the second on as many as all before it.
    fn len(chunk: usize) -> usize {
        (FIRST << chunk.saturating_sub(1)) as usize
    }

    /// That of slot `slot`, if one at that place was ever made.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn get(&self, slot: u32) -> Option<&T> {
        let (chunk, at) = Self::place(slot);
        Some(&self.0[chunk].get()?[at])
    }
}

impl<T: Default> Chunks<T> {
    /// That of slot `slot`; makes those around it with it.
    ///
    /// # Panics
    /// If there is no such slot.
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
    fn what_was_not_made_is_not_there() {
        let all = Chunks::<u32>::new();
        assert_eq!((all.get(0), all.get(SLOTS - 1)), (None, None));
        assert_eq!(*all.make(70), 0);
        assert_eq!(
            (all.get(63), all.get(64), all.get(127), all.get(128)),
            (None, Some(&0), Some(&0), None)
        );
    }
}
