//! Names in directories. Entries never move, so their positions serve as offsets of readdir(3).
//!
//! Directories with a hash tree are read as by a reader without support for it: inner nodes of the
//! tree appear as empty entries. The first change clears the `INDEX` flag, as Linux's ext2 does.

use std::collections::HashSet;
use std::fmt;

use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::{Errno, Kind};

use crate::Ext2;
use crate::change::transaction::{Outcome, Transaction};
use crate::layout::dirent::{self, Entry};
use crate::layout::inode::INDEX;
use crate::layout::superblock::FILETYPE;
use crate::memory::cache::Class;
use crate::memory::index::Index;
use crate::memory::inodes::Inode;
use crate::memory::order::Thing;

/// Entry found by a search.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Number of its inode.
    pub number: u32,
    /// Block within the directory.
    pub logical: u64,
    /// Block on the disk.
    pub block: u32,
    /// Offset of the entry in the block.
    pub at: usize,
}

/// Free space for an entry.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    logical: u64,
    /// Block on the disk.
    pub block: u32,
    at: usize,
    length: usize,
    /// Entry that is followed by the space, if any: its offset, and the length that it keeps.
    of: Option<(usize, usize)>,
}

/// Preferred block of a directory for a new name.
#[derive(Clone, Copy, Debug)]
pub enum Near {
    /// The first block with enough space.
    Any,
    /// This block, if it has enough space.
    Best(u64),
    /// Any block but this one.
    Not(u64),
}

impl Ext2 {
    fn directory_block(&self, directory: &Inode, logical: u64) -> Result<u32, Errno> {
        let block = directory.state().fields.block;
        let found = self.find_extent(directory.number, &block, logical, 1)?;
        found.start.ok_or_else(|| {
            self.complaints.damage(format_args!(
                "inode {}: a directory with a hole at block {logical}",
                directory.number
            ));
            Errno::IO
        })
    }

    /// Returns the number of blocks of a directory. The first call checks that they are different
    /// blocks, without a hole. The size alone proves nothing: a directory of a few kilobytes may
    /// claim gigabytes that all lie in one block.
    pub(crate) fn directory_blocks(&self, directory: &Inode) -> Result<u64, Errno> {
        let (size, block) = {
            let state = directory.state();
            (state.fields.size, state.fields.block)
        };
        let blocks = size / self.geometry.block_size as u64;
        if blocks > 1 && !directory.is_checked.load(Relaxed) {
            self.check_directory(directory.number, &block, blocks)?;
            directory.is_checked.store(true, Relaxed);
        }
        Ok(blocks)
    }

    fn check_directory(&self, number: u32, block: &[u32; 15], blocks: u64) -> Result<(), Errno> {
        let damaged = |what: fmt::Arguments<'_>| {
            self.complaints.damage(format_args!("inode {number}: a directory with {what}"));
            Err(Errno::IO)
        };
        let mut seen = HashSet::new();
        self.walk_map(number, block, 0, |run| {
            if run.logical >= blocks {
                return Ok(Some(()));
            }
            let Some(start) = run.start else {
                return damaged(format_args!("a hole at block {}", run.logical));
            };
            let count = run.count.min(blocks - run.logical);
            for at in (start..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
                if !seen.insert(at) {
                    return damaged(format_args!("block {at} more than once"));
                }
            }
            Ok(None)
        })?;
        Ok(())
    }

    /// Visits the entries of a block until `take` returns a value. Reports damage and returns it as
    /// an error.
    pub(crate) fn scan<R>(
        &self,
        directory: u32,
        block: u32,
        mut take: impl FnMut(&Entry<'_>) -> Option<R>,
    ) -> Result<Option<R>, Errno> {
        let inodes = self.geometry.inodes;
        let outcome: Result<Option<R>, &'static str> = self.cache.read(block, |bytes| {
            for entry in dirent::entries(bytes, inodes) {
                if let Some(found) = take(&entry?) {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })?;
        outcome.map_err(|wrong| {
            self.complaints.damage(format_args!(
                "inode {directory}: a directory: in its block {block}: {wrong}"
            ));
            Errno::IO
        })
    }

    /// Searches for a name. The caller holds the directory's lock.
    pub(crate) fn find_name(
        &self,
        directory: &Inode,
        index: Option<&Index>,
        name: &[u8],
    ) -> Result<Option<Place>, Errno> {
        if name.len() > dirent::LONGEST {
            return Err(Errno::NAMETOOLONG);
        }
        let size = self.geometry.block_size as u64;
        if let Some(index) = index {
            for place in index.candidates(name) {
                let (logical, at) = (place / size, usize::try_from(place % size).unwrap_or(0));
                let block = self.directory_block(directory, logical)?;
                let found = self.scan(directory.number, block, |entry| {
                    (entry.at >= at).then_some((entry.at, entry.number, entry.name == name))
                })?;
                if let Some((found, number, true)) = found
                    && found == at
                    && number != 0
                {
                    return Ok(Some(Place { number, logical, block, at }));
                }
            }
            return Ok(None);
        }
        for logical in 0..self.directory_blocks(directory)? {
            let block = self.directory_block(directory, logical)?;
            let wanted = |entry: &Entry<'_>| {
                (entry.number != 0 && entry.name == name).then_some((entry.number, entry.at))
            };
            if let Some((number, at)) = self.scan(directory.number, block, wanted)? {
                return Ok(Some(Place { number, logical, block, at }));
            }
        }
        Ok(None)
    }

    /// Returns the inode of a name, for a caller without a lock. Loads the inode under the
    /// directory's lock: while the name exists, its inode is alive. Without the lock, the inode
    /// could have ended although its table on the disk still contains it.
    pub(crate) fn look_up(
        &self,
        directory: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Option<Arc<Inode>>, Errno> {
        let small = self.directory_blocks(directory)? <= 1;
        let lock = directory.lock.read().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() || small {
            let place = self.find_name(directory, lock.as_deref(), name)?;
            return place.map(|place| self.inode(place.number)).transpose();
        }
        drop(lock);
        let mut lock = directory.lock.write().unwrap_or_else(PoisonError::into_inner);
        let index = self.indexed(directory, &mut lock)?;
        let place = self.find_name(directory, Some(index), name)?;
        place.map(|place| self.inode(place.number)).transpose()
    }

    /// Returns the directory's index, and builds it if there is none.
    pub(crate) fn indexed<'a>(
        &self,
        directory: &Inode,
        index: &'a mut Option<Box<Index>>,
    ) -> Result<&'a mut Index, Errno> {
        if index.is_none() {
            let mut built = Box::new(Index::new(&self.claims));
            let size = self.geometry.block_size as u64;
            let blocks = self.directory_blocks(directory)?;
            let numbers = directory.state().fields.block;
            let mut logical = 0;
            while logical < blocks {
                let want = u32::try_from(blocks - logical).unwrap_or(u32::MAX).min(256);
                let extent = self.find_extent(directory.number, &numbers, logical, want)?;
                let start = match extent.start {
                    Some(start) => start,
                    None => self.directory_block(directory, logical)?,
                };
                self.cache.load(start, extent.count)?;
                for block in start..start + extent.count {
                    self.claim(directory, &mut built, block)?;
                    let (mut room, base) = (0, logical * size);
                    self.scan(directory.number, block, |entry| -> Option<()> {
                        room = room.max(entry.room());
                        if entry.number != 0 {
                            built.add(entry.name, base + entry.at as u64);
                        }
                        None
                    })?;
                    built.set_room(usize::try_from(logical).unwrap_or(0), room);
                    logical += 1;
                }
            }
            *index = Some(built);
        }
        index.as_deref_mut().ok_or(Errno::IO)
    }

    /// Records that a block belongs to a directory with an index, and to no other one.
    fn claim(&self, directory: &Inode, index: &mut Index, block: u32) -> Result<(), Errno> {
        if index.claimed.claim(block) {
            return Ok(());
        }
        self.complaints.damage(format_args!(
            "inode {}: a directory: its block {block} is in another directory too",
            directory.number
        ));
        Err(Errno::IO)
    }

    /// Finds space for a name, and extends the directory if there is none.
    pub(crate) fn find_gap(
        &self,
        transaction: &Transaction<'_>,
        directory: &Arc<Inode>,
        index: &mut Index,
        name: &[u8],
        near: Near,
    ) -> Outcome<Gap> {
        let needed = dirent::needed(name.len());
        let number = |block: u64| usize::try_from(block).unwrap_or(usize::MAX);
        let found = match near {
            Near::Best(block) if index.room(number(block)) >= needed => Some(number(block)),
            Near::Not(block) => index.find_other_room(needed, number(block)),
            Near::Any | Near::Best(_) => index.find_room(needed),
        };
        let (logical, block) = match found {
            Some(logical) => (logical as u64, self.directory_block(directory, logical as u64)?),
            None => self.grow(transaction, directory, index)?,
        };
        let found = self.scan(directory.number, block, |entry| {
            (entry.room() >= needed).then_some((entry.at, entry.used(), entry.length))
        })?;
        let (at, used, length) = found.ok_or(Errno::IO)?;
        Ok(if used == 0 {
            Gap { logical, block, at, length, of: None }
        } else {
            Gap { logical, block, at: at + used, length: length - used, of: Some((at, used)) }
        })
    }

    /// Adds an empty block to a directory.
    fn grow(
        &self,
        transaction: &Transaction<'_>,
        directory: &Arc<Inode>,
        index: &mut Index,
    ) -> Outcome<(u64, u32)> {
        let size = self.geometry.block_size;
        let logical = self.directory_blocks(directory)?;
        let (block, _, new) = self.fill_extent(transaction, directory, logical, 1)?;
        self.claim(directory, index, block)?;
        let mut bytes = vec![0; size];
        dirent::free_sectors(&mut bytes, 0);
        self.cache.put(block, Class::Directory, bytes.into(), new);
        self.change_inode(directory, |state| state.fields.size += size as u64);
        index.set_room(usize::try_from(logical).unwrap_or(0), dirent::SECTOR);
        Ok((logical, block))
    }

    /// Returns the unit with which a name in this block of the directory is written.
    pub(crate) fn container(&self, directory: &Inode, block: u32) -> Thing {
        if directory.state().born || self.cache.is_fresh(block) {
            Thing::Inode(directory.number)
        } else {
            Thing::Block(block)
        }
    }

    fn file_type(&self, kind: Kind) -> u8 {
        if self.incompat & FILETYPE != 0 { dirent::type_of(kind) } else { 0 }
    }

    /// Modifies a directory's block, and updates the index's record of its free space.
    fn edit(
        &self,
        directory: &Arc<Inode>,
        index: &mut Index,
        (logical, block): (u64, u32),
        mut change: impl FnMut(&mut [u8]),
    ) -> Result<(), Errno> {
        let inodes = self.geometry.inodes;
        let room = self.cache.modify(block, Class::Directory, |bytes| {
            change(bytes);
            dirent::entries(bytes, inodes).flatten().map(|entry| entry.room()).max().unwrap_or(0)
        })?;
        index.set_room(usize::try_from(logical).unwrap_or(0), room);
        let now = (self.now)();
        self.change_inode(directory, |state| {
            (state.fields.mtime, state.fields.ctime) = (now, now);
            state.fields.flags &= !INDEX;
        });
        Ok(())
    }

    /// Writes a name into free space.
    pub(crate) fn put_name(
        &self,
        _: &Transaction<'_>,
        directory: &Arc<Inode>,
        index: &mut Index,
        gap: Gap,
        (name, number, kind): (&[u8], u32, Kind),
    ) -> Result<(), Errno> {
        let kind = self.file_type(kind);
        self.edit(directory, index, (gap.logical, gap.block), |bytes| {
            if let Some((at, length)) = gap.of {
                dirent::set_length(bytes, at, length);
            }
            dirent::put(bytes, gap.at, gap.length, number, kind, name);
        })?;
        index.add(name, gap.logical * self.geometry.block_size as u64 + gap.at as u64);
        Ok(())
    }

    /// Removes a name: the preceding entry in its sector absorbs its space.
    pub(crate) fn take_name(
        &self,
        _: &Transaction<'_>,
        directory: &Arc<Inode>,
        index: &mut Index,
        place: Place,
        name: &[u8],
    ) -> Result<(), Errno> {
        let inodes = self.geometry.inodes;
        self.edit(directory, index, (place.logical, place.block), |bytes| {
            let mut before = None;
            let mut found = None;
            for entry in dirent::entries(bytes, inodes).flatten() {
                if entry.at == place.at {
                    found = Some(entry.length);
                    break;
                }
                before = Some((entry.at, entry.length))
                    .filter(|(at, _)| at / dirent::SECTOR == place.at / dirent::SECTOR);
            }
            match (before, found) {
                (Some((at, length)), Some(more)) => dirent::set_length(bytes, at, length + more),
                _ => dirent::set_target(bytes, place.at, 0, 0),
            }
        })?;
        index.remove(name, place.logical * self.geometry.block_size as u64 + place.at as u64);
        Ok(())
    }

    /// Makes a name lead to another inode.
    pub(crate) fn lead(
        &self,
        _: &Transaction<'_>,
        directory: &Arc<Inode>,
        index: &mut Index,
        place: Place,
        (number, kind): (u32, Kind),
    ) -> Result<(), Errno> {
        let kind = self.file_type(kind);
        self.edit(directory, index, (place.logical, place.block), |bytes| {
            dirent::set_target(bytes, place.at, number, kind);
        })
    }

    /// Returns whether a directory contains only `.` and `..`. The caller holds its lock.
    pub(crate) fn is_empty(&self, directory: &Inode) -> Result<bool, Errno> {
        for logical in 0..self.directory_blocks(directory)? {
            let block = self.directory_block(directory, logical)?;
            let other = |entry: &Entry<'_>| {
                (entry.number != 0 && entry.name != b"." && entry.name != b"..").then_some(())
            };
            if self.scan(directory.number, block, other)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the parent of a directory, from its `..`, with the block and offset of that entry.
    pub(crate) fn parent(&self, directory: &Inode) -> Result<(u32, u32, usize), Errno> {
        let block = self.directory_block(directory, 0)?;
        let found = self.scan(directory.number, block, |entry| {
            (entry.number != 0 && entry.name == b"..").then_some((entry.number, entry.at))
        })?;
        let (number, at) = found.ok_or_else(|| {
            self.complaints
                .damage(format_args!("inode {}: a directory without '..'", directory.number));
            Errno::IO
        })?;
        Ok((number, block, at))
    }

    /// Returns the blocks of a directory on the disk, or none if its block map is damaged.
    pub(crate) fn blocks_of(&self, directory: &Inode) -> Vec<u32> {
        (0..self.directory_blocks(directory).unwrap_or(0))
            .filter_map(|logical| self.directory_block(directory, logical).ok())
            .collect()
    }
}
