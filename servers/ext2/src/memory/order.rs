//! In which order a commit writes: what must be on the disk before what.
//!
//! ext2 has no journal: a commit's writes reach the disk one after the other, and after a power cut
//! any part of the last phase may be there. So a commit is divided into phases, with a flush
//! between, such that after each of them, and any part of the next, `e2fsck -p` repairs the disk
//! without a question. What it repairs so, and what not (e2fsck/problem.c, `PR_PREEN_OK`):
//! - a name that leads to a deleted or unused inode is removed: so a new inode comes after its
//!   name, and an inode is deleted before its name;
//! - an inode without a name is *not* repaired: so a name is added before another of the same
//!   inode is removed; where both are in one block, that is written twice;
//! - a name that is there twice is *not* repaired, where the two are in different blocks: so a
//!   name goes before the same name comes again elsewhere;
//! - wrong counts of links, of free blocks and inodes, of a file's blocks and its size are put
//!   right: so these need no order;
//! - blocks that two files have, and indirect blocks of garbage, are *not*: so new blocks come
//!   before what leads to them, and freed ones rest until the commit is over.
//!
//! What an operation needs in this way it demands here, before it modifies anything; if that
//! contradicts what others have demanded since the last commit, it waits for a commit first. Phases
//! are as early as the demands allow.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use kumihimo::sync::Arc;

/// What is written as one: nothing smaller has an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thing {
    /// A directory's block that was there before.
    Block(u32),
    /// The same with a new name in it and the old one of the same inode as well: half of a block
    /// may be written, so that it could have neither.
    Both(u32),
    /// An inode in its table; with it all that is found only through it, as a new directory's
    /// names.
    Inode(u32),
    /// The names in lost+found of those that lose theirs to another.
    Shelter,
}

/// Blocks: new ones first, and directories of which nothing is demanded.
pub const FIRST: u8 = 1;
/// Inodes of which nothing is demanded, bitmaps, counts.
pub const INODES: u8 = 2;
/// No more than this: each is a flush.
const MOST: u8 = 40;

#[derive(Default)]
struct Place {
    phase: u8,
    after: HashSet<Thing>,
}

/// What is demanded of the next commit.
#[derive(Default)]
pub struct Order {
    places: HashMap<Thing, Place>,
    /// Inodes that lost their last name to another inode, which took it over: they go when that is
    /// on the disk, and have a name in lost+found until then.
    pub replaced: Vec<u32>,
    /// What is written as [`Thing::Both`], by block.
    pub both: HashMap<u32, Arc<[u8]>>,
    /// Where names were removed last, by the hashes of directory and name: two of the same hash
    /// only demand more than is needed.
    left: HashMap<u64, Thing, foldhash::fast::FixedState>,
}

fn hash(directory: u32, name: &[u8]) -> u64 {
    foldhash::fast::FixedState::default().hash_one((directory, name))
}

impl Order {
    /// The phase of a thing.
    pub fn phase(&self, thing: Thing) -> u8 {
        let least = if matches!(thing, Thing::Inode(_)) { INODES } else { FIRST };
        self.places.get(&thing).map_or(least, |place| place.phase)
    }

    /// The last phase of which anything is demanded.
    pub fn last(&self) -> u8 {
        self.places.values().map(|place| place.phase).max().unwrap_or(INODES).max(INODES)
    }

    /// Whether anything was demanded of a thing.
    pub fn knows(&self, thing: Thing) -> bool {
        self.places.contains_key(&thing)
    }

    /// Demands that `later` is written after `earlier`. `false`: that cannot be before a commit;
    /// nothing has changed.
    pub fn demand(&mut self, earlier: Thing, later: Thing) -> bool {
        let least = self.phase(earlier) + 1;
        if least > MOST || self.reaches(later, earlier) {
            return false;
        }
        if self.phase(later) < least && !self.can_raise(later, least, 0) {
            return false;
        }
        let phase = self.phase(earlier);
        let place = self.places.entry(earlier).or_default();
        place.phase = phase;
        place.after.insert(later);
        self.raise(later, least);
        true
    }

    /// A name that may be on the disk is removed from `container`.
    pub fn leaves(&mut self, directory: u32, name: &[u8], container: Thing) {
        // What is found only through a new block or directory is not on the disk.
        if matches!(container, Thing::Block(_)) {
            self.left.insert(hash(directory, name), container);
        }
    }

    /// Demands what the disk needs before a name is put into `container`: that the same name is
    /// gone from where it was. As [`demand`](Order::demand).
    pub fn comes(&mut self, directory: u32, name: &[u8], container: Thing) -> bool {
        match self.left.get(&hash(directory, name)) {
            Some(&left) if left != container => self.demand(left, container),
            _ => true,
        }
    }

    /// Whether `to` is demanded to be after `from`, or is it. Nothing that lies in an earlier phase
    /// can be.
    fn reaches(&self, from: Thing, to: Thing) -> bool {
        if from == to {
            return true;
        }
        if self.phase(from) >= self.phase(to) {
            return false;
        }
        self.places
            .get(&from)
            .is_some_and(|place| place.after.iter().any(|&next| self.reaches(next, to)))
    }

    fn can_raise(&self, thing: Thing, phase: u8, depth: u8) -> bool {
        phase <= MOST
            && depth <= MOST
            && self.places.get(&thing).is_none_or(|place| {
                place.after.iter().all(|&next| {
                    self.phase(next) > phase || self.can_raise(next, phase + 1, depth + 1)
                })
            })
    }

    fn raise(&mut self, thing: Thing, phase: u8) {
        let now = self.phase(thing);
        let place = self.places.entry(thing).or_default();
        place.phase = now.max(phase);
        if now >= phase {
            return;
        }
        let after: Vec<Thing> = place.after.iter().copied().collect();
        for next in after {
            self.raise(next, phase + 1);
        }
    }
}

#[cfg(test)]
mod tests;
