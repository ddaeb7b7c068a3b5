//! Index of the names of a large directory, in memory: built at first use, and dropped with the
//! inode.

use std::collections::HashMap;
use std::hash::BuildHasher;

use kumihimo::sync::Arc;

use super::claims::{Claimed, Claims};

/// Positions of a directory's names, and of free space.
pub struct Index {
    /// Position of an entry in the directory by the hash of its name, in units of four bytes.
    places: HashMap<u64, u32, foldhash::fast::FixedState>,
    /// Entries whose hash is already in `places`.
    collided: Vec<(u64, u32)>,
    /// Size of the largest gap of each block, in bytes.
    room: Vec<u16>,
    /// First block that may have room for the last requested size; all blocks before it have less.
    first: (usize, usize),
    hasher: foldhash::fast::RandomState,
    /// Blocks of the directory.
    pub claimed: Claimed,
}

impl Index {
    /// Creates an index without entries, which records its blocks in `claims`.
    pub fn new(claims: &Arc<Claims>) -> Index {
        Index {
            places: HashMap::default(),
            collided: Vec::new(),
            room: Vec::new(),
            first: (0, 0),
            hasher: foldhash::fast::RandomState::default(),
            claimed: Claimed::new(claims),
        }
    }

    /// Adds an entry.
    pub fn add(&mut self, name: &[u8], place: u64) {
        let (hash, place) = (self.hasher.hash_one(name), u32::try_from(place / 4).unwrap_or(0));
        if let Some(other) = self.places.insert(hash, place) {
            self.collided.push((hash, other));
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, name: &[u8], place: u64) {
        let (hash, place) = (self.hasher.hash_one(name), u32::try_from(place / 4).unwrap_or(0));
        if let Some(at) = self.collided.iter().position(|&other| other == (hash, place)) {
            self.collided.swap_remove(at);
        } else if self.places.get(&hash) == Some(&place) {
            self.places.remove(&hash);
            if let Some(at) = self.collided.iter().position(|&(other, _)| other == hash) {
                let (_, place) = self.collided.swap_remove(at);
                self.places.insert(hash, place);
            }
        }
    }

    /// Returns the positions where a name may be.
    pub fn candidates(&self, name: &[u8]) -> impl Iterator<Item = u64> {
        let hash = self.hasher.hash_one(name);
        let collided =
            self.collided.iter().filter(move |(other, _)| *other == hash).map(|&(_, place)| place);
        self.places
            .get(&hash)
            .copied()
            .into_iter()
            .chain(collided)
            .map(|place| u64::from(place) * 4)
    }

    /// Records the size of the largest gap of a block.
    pub fn set_room(&mut self, block: usize, room: usize) {
        if self.room.len() <= block {
            self.room.resize(block + 1, 0);
        }
        self.room[block] = u16::try_from(room).unwrap_or(u16::MAX);
        if block < self.first.0 {
            self.first.0 = block;
        }
    }

    /// Returns the first block with a gap of at least `needed` bytes.
    pub fn find_room(&mut self, needed: usize) -> Option<usize> {
        // A block too small for a smaller size is also too small for a larger one.
        let from = if needed >= self.first.1 { self.first.0 } else { 0 };
        let found = (from..self.room.len()).find(|&block| usize::from(self.room[block]) >= needed);
        self.first = (found.unwrap_or(self.room.len()), needed);
        found
    }

    /// Returns the first block other than `but` with a gap of at least `needed` bytes.
    pub fn find_other_room(&mut self, needed: usize, but: usize) -> Option<usize> {
        match self.find_room(needed) {
            Some(block) if block == but => {
                (block + 1..self.room.len()).find(|&block| self.room(block) >= needed)
            }
            other => other,
        }
    }

    /// Returns the size of the largest gap of a block.
    pub fn room(&self, block: usize) -> usize {
        self.room.get(block).copied().unwrap_or(0).into()
    }
}
