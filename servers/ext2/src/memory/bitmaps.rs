//! Bitmaps and counts of free blocks and inodes.
//!
//! Bitmaps are read when a group is first used, and stay in memory, with at most 8 KiB for each
//! group.

use kumihimo::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::layout::group::{self, Counts, DESCRIPTOR};
use crate::layout::superblock::Superblock;

/// Freed blocks and inodes that wait for the end of the next commit.
#[derive(Default)]
pub struct Resting {
    pub(crate) blocks: Vec<u32>,
    /// Inodes, each with whether it was a directory.
    pub(crate) inodes: Vec<(u32, bool)>,
}

impl Resting {
    /// Returns whether nothing is resting.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.inodes.is_empty()
    }
}

pub(crate) struct Group {
    pub(crate) counts: Counts,
    pub(crate) blocks: Option<Arc<[u8]>>,
    pub(crate) inodes: Option<Arc<[u8]>>,
    /// Whether counts, block bitmap and inode bitmap were modified since the last commit.
    pub(crate) dirty: [bool; 3],
}

pub(crate) struct State {
    pub(crate) groups: Vec<Group>,
    pub(crate) descriptors: Vec<u8>,
    pub(crate) superblock: Superblock,
    pub(crate) superblock_dirty: bool,
    pub(crate) resting: Resting,
    /// Numbers of resting blocks and inodes, including those of a commit in progress.
    pub(crate) resting_blocks: u32,
    pub(crate) resting_inodes: u32,
}

/// Bitmaps and counts of all groups.
pub struct Allocator {
    state: Mutex<State>,
}

/// Allocation data that a commit writes.
pub struct Maps {
    /// Bitmaps and blocks of group descriptors.
    pub blocks: Vec<(u32, Arc<[u8]>)>,
    /// The superblock, if it was modified.
    pub superblock: Option<Superblock>,
    /// Blocks and inodes that become free when the commit is complete.
    pub resting: Resting,
}

impl Allocator {
    /// Creates the allocator from the superblock and all group descriptors.
    pub fn new(superblock: Superblock, descriptors: Vec<u8>) -> Allocator {
        let group = |bytes: &[u8]| Group {
            counts: group::read(bytes).1,
            blocks: None,
            inodes: None,
            dirty: [false; 3],
        };
        let groups = descriptors.chunks_exact(DESCRIPTOR).map(group).collect();
        let (resting, superblock_dirty) = (Resting::default(), false);
        let state = State {
            groups,
            descriptors,
            superblock,
            superblock_dirty,
            resting,
            resting_blocks: 0,
            resting_inodes: 0,
        };
        Allocator { state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Modifies the superblock; the next commit writes it.
    pub fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        let mut state = self.lock();
        change(&mut state.superblock);
        state.superblock_dirty = true;
    }

    /// Calls `look` with the superblock.
    pub fn superblock<R>(&self, look: impl FnOnce(&Superblock) -> R) -> R {
        look(&self.lock().superblock)
    }

    /// Returns whether a commit has anything to write or to free.
    pub fn is_dirty(&self) -> bool {
        let state = self.lock();
        state.superblock_dirty
            || !state.resting.is_empty()
            || state.groups.iter().any(|group| group.dirty[0])
    }
}

impl State {
    pub(crate) fn superblock_counts(&mut self, now: u32) {
        let blocks: u32 = self.groups.iter().map(|group| u32::from(group.counts.free_blocks)).sum();
        let inodes: u32 = self.groups.iter().map(|group| u32::from(group.counts.free_inodes)).sum();
        self.superblock.set_counts(blocks, inodes, now);
    }
}
