//! Order of a commit's writes.
//!
//! ext2 has no journal. The writes of a commit reach the disk one after the other, and a power cut
//! may leave any part of the last phase. A commit is therefore divided into phases with a flush
//! between them. After each phase and any part of the next one, `e2fsck -p` repairs the disk
//! without a question. The following list states which conditions it repairs (e2fsck/problem.c,
//! `PR_PREEN_OK`):
//!
//! - A name that leads to a deleted or unused inode is removed. Hence a new inode is written after
//!   its name, and a deletion before the removal of the name.
//! - An inode without a name is *not* repaired. Hence a name is added before another name of the
//!   same inode is removed. If both are in one block, that block is written twice.
//! - A name that appears twice in different blocks is *not* repaired. Hence a name is removed
//!   before the same name is added elsewhere.
//! - Wrong counts of links, of free blocks and inodes, and of a file's blocks and size are
//!   corrected. They need no order.
//! - Blocks of two files, and indirect blocks with invalid contents, are *not* repaired. Hence new
//!   blocks are written before references to them, and freed blocks rest until the commit is
//!   complete.
//!
//! An operation requires its order here before it modifies anything. If the requirement contradicts
//! earlier ones since the last commit, the operation first waits for a commit. Each thing is
//! written in the earliest phase that the requirements allow.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use kumihimo::sync::Arc;

/// Unit of ordering: a part of a commit that is written in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thing {
    /// Directory block that existed before the last commit.
    Block(u32),
    /// First of two versions of such a block, with both the new and the old name of an inode. With
    /// one version, a partial write of the block could contain neither name.
    Both(u32),
    /// Inode in its table, together with everything that is found only through it, such as the
    /// names in a new directory.
    Inode(u32),
    /// Names in lost+found of inodes that lose their name to another inode.
    Shelter,
}

/// First phase: new blocks, and directory blocks without a required order.
pub const FIRST: u8 = 1;
/// Phase of inodes without a required order, of bitmaps and of counts.
pub const INODES: u8 = 2;
/// Maximum number of phases, each of which costs a flush.
const MOST: u8 = 40;

#[derive(Default)]
struct Place {
    phase: u8,
    after: HashSet<Thing>,
}

/// Order required of the next commit.
#[derive(Default)]
pub struct Order {
    places: HashMap<Thing, Place>,
    /// Inodes that lost their last name to another inode. They are deleted once that name is on the
    /// disk, and have a name in lost+found until then.
    pub replaced: Vec<u32>,
    /// Contents of [`Thing::Both`], by block.
    pub both: HashMap<u32, Arc<[u8]>>,
    /// Containers from which names were last removed, by the hash of directory and name. A
    /// collision only requires more order than necessary.
    left: HashMap<u64, Thing, foldhash::fast::FixedState>,
}

fn hash(directory: u32, name: &[u8]) -> u64 {
    foldhash::fast::FixedState::default().hash_one((directory, name))
}

impl Order {
    /// Returns the phase in which a thing is written.
    pub fn phase(&self, thing: Thing) -> u8 {
        let least = if matches!(thing, Thing::Inode(_)) { INODES } else { FIRST };
        self.places.get(&thing).map_or(least, |place| place.phase)
    }

    /// Returns the last phase for which there is a requirement.
    pub fn last(&self) -> u8 {
        self.places.values().map(|place| place.phase).max().unwrap_or(INODES).max(INODES)
    }

    /// Returns whether there is a requirement for a thing.
    pub fn knows(&self, thing: Thing) -> bool {
        self.places.contains_key(&thing)
    }

    /// Requires that `later` is written after `earlier`. Returns false, without a change, if that
    /// is impossible before a commit.
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

    /// Records that a name, which may be on the disk, is removed from `container`.
    pub fn leaves(&mut self, directory: u32, name: &[u8], container: Thing) {
        // Names found only through a new block or directory are not on the disk.
        if matches!(container, Thing::Block(_)) {
            self.left.insert(hash(directory, name), container);
        }
    }

    /// Requires the order that adding a name to `container` needs: the same name must be gone from
    /// its former container. Returns as [`demand`](Order::demand).
    pub fn comes(&mut self, directory: u32, name: &[u8], container: Thing) -> bool {
        match self.left.get(&hash(directory, name)) {
            Some(&left) if left != container => self.demand(left, container),
            _ => true,
        }
    }

    /// Returns whether `to` equals `from` or must be written after it. Nothing in an earlier or
    /// equal phase can be.
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
