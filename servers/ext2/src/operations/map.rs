//! Block map of a file: twelve block numbers in the inode, then one, two and three levels of
//! indirect blocks.

use std::collections::HashSet;

use kumihimo::sync::Arc;
use kumihimo_store::Errno;

use crate::Ext2;
use crate::change::transaction::{Outcome, Stop, Transaction};
use crate::layout::{get32, put32};
use crate::memory::cache::Class;
use crate::memory::inodes::Inode;

/// Number of blocks that need no indirect block.
const DIRECT: u64 = 12;

/// Part of a file that is contiguous on the disk, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block on the disk; `None` for a hole.
    pub start: Option<u32>,
    /// Number of blocks, at least 1.
    pub count: u32,
}

/// Path to a block: the index in the inode, then the index in each indirect block.
struct Path {
    slot: usize,
    indices: [usize; 3],
    levels: usize,
}

/// Location of a block number.
#[derive(Clone, Copy)]
enum Slot {
    Inode(usize),
    Block(u32, usize),
}

impl Ext2 {
    fn path(&self, logical: u64) -> Result<Path, Errno> {
        let pointers = self.geometry.pointers() as u64;
        if logical < DIRECT {
            return Ok(Path {
                slot: usize::try_from(logical).unwrap_or(0),
                indices: [0; 3],
                levels: 0,
            });
        }
        let mut rest = logical - DIRECT;
        let mut span = pointers;
        for levels in 1..=3 {
            if rest < span {
                let mut indices = [0; 3];
                for index in indices[..levels].iter_mut().rev() {
                    *index = usize::try_from(rest % pointers).unwrap_or(0);
                    rest /= pointers;
                }
                return Ok(Path { slot: 11 + levels, indices, levels });
            }
            rest -= span;
            span *= pointers;
        }
        Err(Errno::FBIG)
    }

    /// Checks that the number of an indirect block is valid.
    pub(crate) fn check_indirect(&self, inode: u32, block: u32) -> Result<(), Errno> {
        if self.geometry.is_for_files(block) {
            return Ok(());
        }
        let wrong = if block >= self.geometry.blocks {
            "beyond the medium"
        } else {
            "in the file system's structures"
        };
        self.complaints.damage(format_args!("inode {inode}: indirect block {block} is {wrong}"));
        Err(Errno::IO)
    }

    /// Returns the extent at block `logical` of a file, of up to `want` blocks: contiguous blocks
    /// on the disk, or a hole.
    pub(crate) fn find_extent(
        &self,
        inode: u32,
        block: &[u32; 15],
        logical: u64,
        want: u32,
    ) -> Result<Extent, Errno> {
        let path = self.path(logical)?;
        if path.levels == 0 {
            return self.run(inode, block[path.slot..12].iter().copied(), want);
        }
        let pointers = self.geometry.pointers();
        let mut at = block[path.slot];
        for (depth, &index) in path.indices[..path.levels].iter().enumerate() {
            if at == 0 {
                // The hole extends to the end of the range that the missing block would cover.
                let below = &path.indices[depth..path.levels];
                let span = (pointers as u64).pow(u32::try_from(below.len()).unwrap_or(1));
                let passed =
                    below.iter().fold(0, |sum, &index| sum * pointers as u64 + index as u64);
                return Ok(Extent {
                    start: None,
                    count: u32::try_from(span - passed).unwrap_or(u32::MAX).min(want),
                });
            }
            self.check_indirect(inode, at)?;
            if depth + 1 == path.levels {
                return self.cache.read(at, |bytes| {
                    self.run(
                        inode,
                        bytes[index * 4..].chunks_exact(4).map(|number| get32(number, 0)),
                        want,
                    )
                })?;
            }
            at = self.cache.read(at, |bytes| get32(bytes, index * 4))?;
        }
        Err(Errno::IO)
    }

    /// Returns the first extent of these block numbers.
    pub(crate) fn run(
        &self,
        inode: u32,
        mut numbers: impl Iterator<Item = u32>,
        want: u32,
    ) -> Result<Extent, Errno> {
        let first = numbers.next().unwrap_or(0);
        let mut count = 1;
        if first == 0 {
            count += u32::try_from(
                numbers.take(want as usize - 1).take_while(|&number| number == 0).count(),
            )
            .unwrap_or(0);
            return Ok(Extent { start: None, count });
        }
        if !self.geometry.is_for_files(first) {
            let wrong = if first >= self.geometry.blocks {
                "beyond the medium"
            } else {
                "in the file system's structures"
            };
            self.complaints.damage(format_args!("inode {inode}: block {first} is {wrong}"));
            return Err(Errno::IO);
        }
        while count < want
            && numbers.next() == Some(first + count)
            && self.geometry.is_for_files(first + count)
        {
            count += 1;
        }
        Ok(Extent { start: Some(first), count })
    }

    /// Returns an extent like [`find_extent`](Ext2::find_extent), but fills a hole. The flag is
    /// true if the blocks are new; the caller then writes each of them at once.
    pub(crate) fn fill_extent(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        logical: u64,
        want: u32,
    ) -> Outcome<(u32, u32, bool)> {
        let block = inode.state().fields.block;
        let found = self.find_extent(inode.number, &block, logical, want)?;
        if let Some(start) = found.start {
            return Ok((start, found.count, false));
        }
        let path = self.path(logical)?;
        let mut goal = self.goal(inode, &block, logical);
        let mut slot = Slot::Inode(path.slot);
        for &index in &path.indices[..path.levels] {
            let mut at = match slot {
                Slot::Inode(index) => inode.state().fields.block[index],
                Slot::Block(block, index) => {
                    self.cache.read(block, |bytes| get32(bytes, index * 4))?
                }
            };
            if at == 0 {
                self.count_sectors(inode, 1)?;
                at = match self.allocate_blocks(transaction, goal, 1) {
                    Ok((at, _)) => at,
                    Err(stop) => return Err(self.uncount(inode, 1, stop)),
                };
                self.cache.put_zeroes(at, Class::Indirect);
                self.set_slot(inode, slot, &[at])?;
                goal = at + 1;
            }
            slot = Slot::Block(at, index);
        }
        let room = match slot {
            Slot::Inode(index) => 12 - index,
            Slot::Block(_, index) => self.geometry.pointers() - index,
        };
        let want = found.count.min(want).min(u32::try_from(room).unwrap_or(1));
        self.count_sectors(inode, want)?;
        let (start, count) = match self.allocate_blocks(transaction, goal, want) {
            Ok(found) => found,
            Err(stop) => return Err(self.uncount(inode, want, stop)),
        };
        self.uncount(inode, want - count, Stop::Commit);
        let numbers: Vec<u32> = (start..start + count).collect();
        self.set_slot(inode, slot, &numbers)?;
        Ok((start, count, true))
    }

    fn set_slot(&self, inode: &Arc<Inode>, slot: Slot, numbers: &[u32]) -> Result<(), Errno> {
        match slot {
            Slot::Inode(index) => self.change_inode(inode, |state| {
                state.fields.block[index..index + numbers.len()].copy_from_slice(numbers);
            }),
            Slot::Block(block, index) => self.cache.modify(block, Class::Indirect, |bytes| {
                for (place, number) in bytes[index * 4..].chunks_exact_mut(4).zip(numbers) {
                    put32(place, 0, *number);
                }
            })?,
        }
        Ok(())
    }

    /// Adds blocks to an inode's `i_blocks`. Returns `EFBIG` if it overflows.
    pub(crate) fn count_sectors(&self, inode: &Arc<Inode>, blocks: u32) -> Result<(), Errno> {
        let more = blocks * u32::try_from(self.geometry.block_size / 512).unwrap_or(1);
        self.change_inode(inode, |state| {
            state.fields.sectors = state.fields.sectors.checked_add(more).ok_or(Errno::FBIG)?;
            Ok(())
        })
    }

    fn uncount(&self, inode: &Arc<Inode>, blocks: u32, stop: Stop) -> Stop {
        if blocks > 0 {
            let less = blocks * u32::try_from(self.geometry.block_size / 512).unwrap_or(1);
            self.change_inode(inode, |state| {
                state.fields.sectors = state.fields.sectors.saturating_sub(less)
            });
        }
        stop
    }

    /// Returns the preferred position of a block: after the preceding block, otherwise in the
    /// inode's group.
    fn goal(&self, inode: &Inode, block: &[u32; 15], logical: u64) -> u32 {
        let before = logical
            .checked_sub(1)
            .and_then(|before| self.find_extent(inode.number, block, before, 1).ok());
        if let Some(Extent { start: Some(before), .. }) = before {
            return before + 1;
        }
        let group = self.geometry.group_of_inode(inode.number);
        self.geometry.groups[group].inode_table + self.geometry.table_blocks
    }

    /// Frees the blocks `from..to` of a file, and the indirect blocks that become empty. Leaves
    /// indirect blocks that cannot be read.
    pub(crate) fn free_range(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        from: u64,
        to: u64,
    ) -> Result<(), Errno> {
        let block = inode.state().fields.block;
        let mut walk = Walk { store: self, transaction, inode, from, to, seen: HashSet::new() };
        let pointers = self.geometry.pointers() as u64;
        let mut cleared = Vec::new();
        let mut outcome = Ok(());
        let (mut base, mut span) = (0, 1);
        for (slot, &at) in block.iter().enumerate() {
            let levels = slot.saturating_sub(11);
            span = if levels > 0 { span * pointers } else { 1 };
            match walk.free_tree(at, levels, base, span) {
                Ok(true) => cleared.push(slot),
                Ok(false) => {}
                Err(errno) => outcome = Err(errno),
            }
            base += span;
        }
        self.change_inode(inode, |state| {
            cleared.iter().for_each(|&slot| state.fields.block[slot] = 0)
        });
        outcome
    }

    /// Reads the indirect blocks of a file into the cache, before a transaction, which must not
    /// wait for the disk.
    pub(crate) fn warm(&self, inode: &Inode, from: u64) {
        let (block, size) = {
            let state = inode.state();
            (state.fields.block, state.fields.size)
        };
        let end = size.div_ceil(self.geometry.block_size as u64).max(from + 1);
        // Freeing reports the error again.
        let _ = self.walk_map(inode.number, &block, from, |run| {
            Ok((run.logical + run.count >= end).then_some(()))
        });
    }
}

/// State of freeing a range.
struct Walk<'a> {
    store: &'a Ext2,
    transaction: &'a Transaction<'a>,
    inode: &'a Arc<Inode>,
    from: u64,
    to: u64,
    /// Visited indirect blocks: on a damaged disk they may form a cycle.
    seen: HashSet<u32>,
}

impl Walk<'_> {
    /// Frees the blocks below block `at`, which covers `span` blocks from `base` on, and `at`
    /// itself if nothing below it remains. Returns whether `at` was freed.
    fn free_tree(&mut self, at: u32, levels: usize, base: u64, span: u64) -> Result<bool, Errno> {
        let store = self.store;
        if at == 0 || base >= self.to || base + span <= self.from {
            return Ok(false);
        }
        if !store.geometry.is_for_files(at) || (levels > 0 && !self.seen.insert(at)) {
            let number = self.inode.number;
            store.complaints.damage(format_args!(
                "inode {number}: block {at} cannot belong to it, and is not freed"
            ));
            return Ok(true);
        }
        if levels > 0 {
            let numbers: Vec<u32> = store
                .cache
                .read(at, |bytes| bytes.chunks_exact(4).map(|number| get32(number, 0)).collect())?;
            let below = span / numbers.len() as u64;
            let (mut cleared, mut left, mut outcome) = (Vec::new(), false, Ok(()));
            for (index, &number) in numbers.iter().enumerate() {
                match self.free_tree(number, levels - 1, base + index as u64 * below, below) {
                    Ok(true) => cleared.push(index),
                    Ok(false) => left |= number != 0,
                    Err(errno) => (left, outcome) = (true, Err(errno)),
                }
            }
            if left {
                if !cleared.is_empty() {
                    store.cache.modify(at, Class::Indirect, |bytes| {
                        cleared.iter().for_each(|&index| put32(bytes, index * 4, 0));
                    })?;
                }
                outcome?;
                return Ok(false);
            }
        }
        let fresh = store.cache.forget(at);
        store.free_block(self.transaction, at, fresh);
        store.uncount(self.inode, 1, Stop::Commit);
        Ok(true)
    }
}
