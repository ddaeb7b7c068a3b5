//! Allocation of blocks and inodes.
//!
//! Bitmaps are read when a group is first used, and stay in memory, with at most 8 KiB for each
//! group. A freed block or inode rests until a commit has made its freeing durable. Only then is
//! its bit cleared, so that it can be allocated again. Blocks and inodes allocated since the last
//! commit are freed without a rest.

use kumihimo::sync::Arc;
use kumihimo_store::{Errno, Statistics};

use crate::Ext2;
use crate::change::transaction::{Outcome, Stop, Transaction};
use crate::layout::dirent::LONGEST;
use crate::layout::group::{self, DESCRIPTOR};
use crate::memory::bitmaps::{Group, Maps, Resting};

/// Selects one of a group's two bitmaps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Blocks,
    Inodes,
}

impl Ext2 {
    /// Allocates up to `want` consecutive blocks, at `goal` or as soon after it as possible.
    /// Returns `Commit` if a commit may free blocks.
    pub(crate) fn allocate_blocks(
        &self,
        _: &Transaction<'_>,
        goal: u32,
        want: u32,
    ) -> Outcome<(u32, u32)> {
        let geometry = &self.geometry;
        let goal = if geometry.is_for_files(goal) { goal } else { geometry.first_data_block };
        let first = geometry.group_of(goal);
        let groups = geometry.groups.len();
        let mut step = 0;
        // The goal's group is searched twice: at first from the goal on, at last from its
        // beginning.
        while step <= groups {
            let number = (first + step) % groups;
            let from = if step == 0 { goal - geometry.group_start(number) } else { 0 };
            let limit = geometry.group_blocks(number);
            {
                let mut state = self.allocator.lock();
                let group = &mut state.groups[number];
                if group.counts.free_blocks == 0 {
                    step += 1;
                    continue;
                }
                if let Some(bitmap) = &mut group.blocks {
                    let Some(start) = next_zero(bitmap, from, limit) else {
                        step += 1;
                        continue;
                    };
                    let bits = Arc::make_mut(bitmap);
                    let mut count = 0;
                    while count < want && start + count < limit && !bit(bits, start + count) {
                        set_bit(bits, start + count, true);
                        count += 1;
                    }
                    group.counts.free_blocks -= u16::try_from(count).unwrap_or(u16::MAX);
                    (group.dirty[0], group.dirty[1]) = (true, true);
                    return Ok((geometry.group_start(number) + start, count));
                }
            }
            self.load_bitmap(number, Which::Blocks)?;
        }
        Err(if self.allocator.lock().resting_blocks > 0 {
            Stop::Commit
        } else {
            Stop::Errno(Errno::NOSPC)
        })
    }

    /// Frees a block. `fresh` means that it was allocated since the last commit.
    pub(crate) fn free_block(&self, _: &Transaction<'_>, block: u32, fresh: bool) {
        if fresh {
            self.clear_block(block);
        } else {
            let mut state = self.allocator.lock();
            state.resting.blocks.push(block);
            state.resting_blocks += 1;
        }
    }

    fn clear_block(&self, block: u32) {
        let number = self.geometry.group_of(block);
        let at = block - self.geometry.group_start(number);
        let mut state = self.allocator.lock();
        let group = &mut state.groups[number];
        let Some(bitmap) = &mut group.blocks else { return };
        if !bit(bitmap, at) {
            drop(state);
            self.complaints.damage(format_args!(
                "group {number}: block {block} is freed, but its bitmap marks it as free already"
            ));
            return;
        }
        set_bit(Arc::make_mut(bitmap), at, false);
        group.counts.free_blocks += 1;
        (group.dirty[0], group.dirty[1]) = (true, true);
    }

    /// Allocates an inode: for a file in its directory's group, for a directory in a group with
    /// much free space.
    pub(crate) fn allocate_inode(
        &self,
        _: &Transaction<'_>,
        parent: u32,
        directory: bool,
    ) -> Outcome<u32> {
        let geometry = &self.geometry;
        let groups = geometry.groups.len();
        let home = geometry.group_of_inode(parent);
        let first = if directory { self.group_for_directory(home, parent == 2) } else { home };
        let mut step = 0;
        while step < groups {
            let number = (first + step) % groups;
            {
                let mut state = self.allocator.lock();
                let group = &mut state.groups[number];
                if group.counts.free_inodes == 0 {
                    step += 1;
                    continue;
                }
                if let Some(bitmap) = &mut group.inodes {
                    let Some(at) = next_zero(bitmap, 0, geometry.inodes_per_group) else {
                        step += 1;
                        continue;
                    };
                    set_bit(Arc::make_mut(bitmap), at, true);
                    group.counts.free_inodes -= 1;
                    group.counts.directories =
                        group.counts.directories.saturating_add(u16::from(directory));
                    (group.dirty[0], group.dirty[2]) = (true, true);
                    return Ok(u32::try_from(number).unwrap_or(0) * geometry.inodes_per_group
                        + at
                        + 1);
                }
            }
            self.load_bitmap(number, Which::Inodes)?;
        }
        Err(if self.allocator.lock().resting_inodes > 0 {
            Stop::Commit
        } else {
            Stop::Errno(Errno::NOSPC)
        })
    }

    /// Selects the group of a new directory. Directories in the root are spread over the disk;
    /// others stay near their parent while it has space (after `find_group_orlov` of
    /// fs/ext2/ialloc.c).
    fn group_for_directory(&self, home: usize, spread: bool) -> usize {
        let state = self.allocator.lock();
        let groups = &state.groups;
        let inodes: usize = groups.iter().map(|group| usize::from(group.counts.free_inodes)).sum();
        let blocks: usize = groups.iter().map(|group| usize::from(group.counts.free_blocks)).sum();
        let (inodes, blocks) = (inodes / groups.len(), blocks / groups.len());
        let roomy = |group: &Group| {
            usize::from(group.counts.free_inodes) >= inodes.max(1)
                && usize::from(group.counts.free_blocks) >= blocks
        };
        if spread {
            let best = groups.iter().enumerate().filter(|(_, group)| roomy(group));
            return best
                .min_by_key(|(_, group)| group.counts.directories)
                .map_or(home, |(number, _)| number);
        }
        let near = |group: &Group| {
            usize::from(group.counts.free_inodes) > inodes / 4
                && usize::from(group.counts.free_blocks) > blocks / 4
        };
        (0..groups.len())
            .map(|step| (home + step) % groups.len())
            .find(|&number| near(&groups[number]))
            .unwrap_or(home)
    }

    /// Frees an inode. `born` means that it was allocated since the last commit.
    pub(crate) fn free_inode(&self, number: u32, directory: bool, born: bool) {
        if born {
            self.clear_inode(number, directory);
        } else {
            let mut state = self.allocator.lock();
            state.resting.inodes.push((number, directory));
            state.resting_inodes += 1;
        }
    }

    fn clear_inode(&self, number: u32, directory: bool) {
        let of = self.geometry.group_of_inode(number);
        let at = (number - 1) % self.geometry.inodes_per_group;
        let mut state = self.allocator.lock();
        let group = &mut state.groups[of];
        let Some(bitmap) = &mut group.inodes else { return };
        if !bit(bitmap, at) {
            drop(state);
            self.complaints.damage(format_args!(
                "group {of}: inode {number} is freed, but its bitmap marks it as free already"
            ));
            return;
        }
        set_bit(Arc::make_mut(bitmap), at, false);
        group.counts.free_inodes += 1;
        group.counts.directories = group.counts.directories.saturating_sub(u16::from(directory));
        (group.dirty[0], group.dirty[2]) = (true, true);
    }

    /// Reads a bitmap, without holding a lock. Corrects bits that mark the file system's own blocks
    /// and inodes as free, and a descriptor's count that differs from the bitmap.
    fn load_bitmap(&self, number: usize, which: Which) -> Result<(), Errno> {
        let geometry = &self.geometry;
        let places = geometry.groups[number];
        let (place, limit) = match which {
            Which::Blocks => (places.block_bitmap, geometry.group_blocks(number)),
            Which::Inodes => (places.inode_bitmap, geometry.inodes_per_group),
        };
        let mut bits = vec![0; geometry.block_size];
        let offset = u64::from(place) * geometry.block_size as u64;
        self.cache.disk().read(offset, &mut bits).map_err(|error| {
            self.complaints.say(format_args!(
                "group {number}: its bitmap in block {place} cannot be read: {error}"
            ));
            Errno::IO
        })?;
        let own = |at: u32| match which {
            Which::Blocks => !geometry.is_for_files(geometry.group_start(number) + at),
            Which::Inodes => number == 0 && at + 1 < geometry.first_inode,
        };
        for at in (0..limit).filter(|&at| own(at)) {
            if !bit(&bits, at) {
                self.complaints.damage(format_args!(
                    "group {number}: its bitmap marks its own structures as free"
                ));
                set_bit(&mut bits, at, true);
            }
        }
        let free = (0..limit).filter(|&at| !bit(&bits, at)).count();
        let free = u16::try_from(free).unwrap_or(u16::MAX);
        let mut state = self.allocator.lock();
        let group = &mut state.groups[number];
        let (slot, count) = match which {
            Which::Blocks => (&mut group.blocks, &mut group.counts.free_blocks),
            Which::Inodes => (&mut group.inodes, &mut group.counts.free_inodes),
        };
        if slot.is_some() {
            return Ok(());
        }
        *slot = Some(bits.into());
        let said = std::mem::replace(count, free);
        drop(state);
        if said != free {
            let of = if which == Which::Blocks { "blocks" } else { "inodes" };
            self.complaints.damage(format_args!(
                "group {number}: its descriptor counts {said} free {of}, its bitmap {free}"
            ));
        }
        Ok(())
    }

    /// Collects the bitmaps, descriptors and superblock that a commit writes. No change runs
    /// meanwhile.
    pub(crate) fn take_maps(&self, now: u32) -> Maps {
        let geometry = &self.geometry;
        let mut guard = self.allocator.lock();
        let state = &mut *guard;
        let mut maps = Maps {
            blocks: Vec::new(),
            superblock: None,
            resting: std::mem::take(&mut state.resting),
        };
        let per_block = geometry.block_size / DESCRIPTOR;
        let mut descriptors = Vec::new();
        for (number, group) in state.groups.iter_mut().enumerate() {
            let [counts, blocks, inodes] = std::mem::take(&mut group.dirty);
            if counts {
                group::put_counts(&mut state.descriptors[number * DESCRIPTOR..], group.counts);
                descriptors.push(number / per_block);
            }
            let both = [(blocks, geometry.groups[number].block_bitmap, &group.blocks)];
            for (dirty, place, bits) in both.into_iter().chain([(
                inodes,
                geometry.groups[number].inode_bitmap,
                &group.inodes,
            )]) {
                if let (true, Some(bits)) = (dirty, bits) {
                    maps.blocks.push((place, Arc::clone(bits)));
                }
            }
        }
        descriptors.dedup();
        for block in &descriptors {
            let mut bytes = vec![0; geometry.block_size];
            let from = &state.descriptors[block * geometry.block_size..];
            let length = from.len().min(geometry.block_size);
            bytes[..length].copy_from_slice(&from[..length]);
            let place = geometry.first_data_block + 1 + u32::try_from(*block).unwrap_or(0);
            maps.blocks.push((place, bytes.into()));
        }
        if !descriptors.is_empty() || std::mem::take(&mut state.superblock_dirty) {
            state.superblock_dirty = false;
            state.superblock_counts(now);
            maps.superblock = Some(state.superblock.clone());
        }
        maps
    }

    /// Frees the blocks and inodes that rested, after a commit.
    pub(crate) fn release(&self, resting: Resting) -> Result<(), Errno> {
        for &block in &resting.blocks {
            let group = self.geometry.group_of(block);
            self.loaded(group, Which::Blocks)?;
            self.clear_block(block);
        }
        for &(number, directory) in &resting.inodes {
            self.loaded(self.geometry.group_of_inode(number), Which::Inodes)?;
            self.clear_inode(number, directory);
        }
        let mut state = self.allocator.lock();
        state.resting_blocks -= u32::try_from(resting.blocks.len()).unwrap_or(0);
        state.resting_inodes -= u32::try_from(resting.inodes.len()).unwrap_or(0);
        Ok(())
    }

    fn loaded(&self, group: usize, which: Which) -> Result<(), Errno> {
        let here = {
            let state = self.allocator.lock();
            let group = &state.groups[group];
            if which == Which::Blocks { group.blocks.is_some() } else { group.inodes.is_some() }
        };
        if here { Ok(()) } else { self.load_bitmap(group, which) }
    }

    /// Returns the statistics of statvfs(3). Resting blocks count as free, because a writer that
    /// needs them waits for the commit. Blocks reserved for root do not count as available, but no
    /// user is prevented from using them.
    pub(crate) fn space(&self) -> Statistics {
        let geometry = &self.geometry;
        let heads =
            (0..geometry.groups.len()).filter(|&group| geometry.has_head(group)).count() as u64;
        let per_group = u64::from(geometry.table_blocks) + 2;
        let overhead = u64::from(geometry.first_data_block)
            + heads * u64::from(geometry.head_blocks)
            + per_group * geometry.groups.len() as u64;
        let state = self.allocator.lock();
        let free =
            state.groups.iter().map(|group| u64::from(group.counts.free_blocks)).sum::<u64>();
        let free = free + u64::from(state.resting_blocks);
        let free_inodes =
            state.groups.iter().map(|group| u64::from(group.counts.free_inodes)).sum::<u64>();
        Statistics {
            block_size: u32::try_from(geometry.block_size).unwrap_or(0),
            blocks: u64::from(geometry.blocks).saturating_sub(overhead),
            free,
            available: free.saturating_sub(u64::from(state.superblock.reserved_blocks())),
            inodes: u64::from(geometry.inodes),
            free_inodes: free_inodes + u64::from(state.resting_inodes),
            longest_name: u32::try_from(LONGEST).unwrap_or(0),
        }
    }
}

fn bit(bits: &[u8], at: u32) -> bool {
    bits[at as usize / 8] >> (at % 8) & 1 != 0
}

fn set_bit(bits: &mut [u8], at: u32, to: bool) {
    let mask = 1 << (at % 8);
    if to { bits[at as usize / 8] |= mask } else { bits[at as usize / 8] &= !mask }
}

/// Returns the first zero bit in `from..limit`.
fn next_zero(bits: &[u8], from: u32, limit: u32) -> Option<u32> {
    let mut at = from;
    while at < limit {
        let byte = bits[at as usize / 8];
        if byte == 0xFF {
            at = (at / 8 + 1) * 8;
        } else if byte >> (at % 8) & 1 == 0 {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}
