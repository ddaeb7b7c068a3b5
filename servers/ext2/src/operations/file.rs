//! Contents of files.

use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::{Errno, Kind, Time};

use crate::Ext2;
use crate::change::transaction::{Outcome, Transaction};
use crate::layout::inode::{APPEND, IMMUTABLE};
use crate::layout::superblock::LARGE_FILE;
use crate::memory::cache::Class;
use crate::memory::inodes::{Inode, State};

/// Number of bytes to read ahead of a sequential reader.
const AHEAD: usize = 256 << 10;
/// Size from which a file is large and needs the feature LARGE_FILE.
const LARGE: u64 = 1 << 31;
/// Maximum age of an access time in seconds if nothing changed, as with `relatime` (mount(8)).
const DAY: i64 = 86_400;

impl Ext2 {
    /// Updates the access time as mount option `relatime` does: it records whether the file was
    /// read since its last change.
    pub(crate) fn touch(&self, inode: &Arc<Inode>) {
        if self.writable().is_err() {
            return;
        }
        let now = (self.now)();
        let stale = |state: &State| {
            let fields = &state.fields;
            fields.atime <= fields.mtime
                || fields.atime <= fields.ctime
                || now.seconds - fields.atime.seconds >= DAY
        };
        let is_stale = stale(&inode.state());
        if is_stale {
            self.change_inode(inode, |state| state.fields.atime = now);
        }
    }

    /// Reads as pread(2).
    pub(crate) fn read_file(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, Errno> {
        let _lock = inode.lock.read().unwrap_or_else(PoisonError::into_inner);
        let (size, block, kind) = {
            let state = inode.state();
            (state.fields.size, state.fields.block, state.kind())
        };
        match kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let length =
            usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..length];
        if length == 0 {
            return Ok(0);
        }
        let ahead =
            if inode.read_to.swap(offset + length as u64, Relaxed) == offset { AHEAD } else { 0 };
        self.read_blocks(inode.number, &block, offset, into, ahead)?;
        self.touch(inode);
        Ok(length)
    }

    fn read_blocks(
        &self,
        number: u32,
        block: &[u32; 15],
        offset: u64,
        into: &mut [u8],
        ahead: usize,
    ) -> Result<(), Errno> {
        let size = self.geometry.block_size;
        let end = offset + into.len() as u64;
        let mut at = offset;
        let mut rest = into;
        while at < end {
            let logical = at / size as u64;
            let wanted = u32::try_from((end - 1) / size as u64 - logical + 1).unwrap_or(u32::MAX);
            let more = u32::try_from(ahead / size).unwrap_or(0);
            let extent = self.find_extent(number, block, logical, wanted.saturating_add(more))?;
            let count = extent.count.min(wanted);
            let mut next = |bytes: Option<&[u8]>| {
                let within = usize::try_from(at % size as u64).unwrap_or(0);
                let length = (size - within).min(rest.len());
                let (part, after) = std::mem::take(&mut rest).split_at_mut(length);
                match bytes {
                    None => part.fill(0),
                    Some(bytes) => part.copy_from_slice(&bytes[within..within + length]),
                }
                rest = after;
                at += length as u64;
            };
            match extent.start {
                None => (0..count).for_each(|_| next(None)),
                Some(start) => {
                    self.cache.read_range(start, count, extent.count - count, |_, bytes| {
                        next(Some(bytes))
                    })?
                }
            }
        }
        Ok(())
    }

    /// Writes as pwrite(2). `now` is the new modification time; without it the times do not change.
    pub(crate) fn write_file(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        from: &[u8],
        now: Option<Time>,
    ) -> Result<usize, Errno> {
        self.throttle()?;
        let _lock = inode.lock.write().unwrap_or_else(PoisonError::into_inner);
        let old = self.changeable_file(inode, false)?;
        let largest = self.geometry.largest_file();
        if offset >= largest && !from.is_empty() {
            return Err(Errno::FBIG);
        }
        let room = usize::try_from(largest.saturating_sub(offset)).unwrap_or(usize::MAX);
        let from = &from[..from.len().min(room)];
        if from.is_empty() {
            return Ok(0);
        }
        self.warm_edges(inode, offset, offset + from.len() as u64);
        if offset > old {
            self.warm_edges(inode, old, old);
        }
        let mut written = 0;
        let outcome = self.modify(|transaction| {
            if written == 0 && offset > old {
                self.clear_tail(inode, old)?;
            }
            let outcome = self.write_blocks(transaction, inode, offset, from, &mut written);
            if written > 0 {
                self.resize(inode, offset + written as u64, true);
                if let Some(now) = now {
                    self.change_inode(inode, |state| {
                        (state.fields.mtime, state.fields.ctime) = (now, now)
                    });
                }
            }
            outcome
        });
        match outcome {
            Err(errno) if written == 0 => Err(errno),
            _ => Ok(written),
        }
    }

    fn write_blocks(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        offset: u64,
        from: &[u8],
        written: &mut usize,
    ) -> Outcome<()> {
        let size = self.geometry.block_size;
        while *written < from.len() {
            let at = offset + *written as u64;
            let logical = at / size as u64;
            let end = offset + from.len() as u64;
            let want = u32::try_from((end - 1) / size as u64 - logical + 1).unwrap_or(u32::MAX);
            let (start, count, new) = self.fill_extent(transaction, inode, logical, want)?;
            for block in start..start + count {
                let within = usize::try_from((offset + *written as u64) % size as u64).unwrap_or(0);
                let part = &from[*written..from.len().min(*written + size - within)];
                if part.len() == size {
                    self.cache.put(block, Class::Data, part.into(), new);
                } else {
                    if new {
                        self.cache.put_zeroes(block, Class::Data);
                    }
                    self.cache.modify(block, Class::Data, |bytes| {
                        bytes[within..within + part.len()].copy_from_slice(part)
                    })?;
                }
                *written += part.len();
            }
        }
        Ok(())
    }

    /// Returns the file's size, or an error if its contents must not be changed.
    pub(crate) fn changeable_file(&self, inode: &Inode, cut: bool) -> Result<u64, Errno> {
        self.writable()?;
        let state = inode.state();
        match state.kind() {
            _ if state.dead => Err(Errno::STALE),
            Kind::Directory => Err(Errno::ISDIR),
            Kind::File
                if state.fields.flags & IMMUTABLE != 0
                    || (cut && state.fields.flags & APPEND != 0) =>
            {
                Err(Errno::PERM)
            }
            Kind::File => Ok(state.fields.size),
            _ => Err(Errno::INVAL),
        }
    }

    /// Sets the size, or only raises it.
    pub(crate) fn resize(&self, inode: &Arc<Inode>, size: u64, raise: bool) {
        let large = self.change_inode(inode, |state| {
            let before = state.fields.size;
            state.fields.size = if raise { before.max(size) } else { size };
            before < LARGE && state.fields.size >= LARGE
        });
        if large && self.allocator.superblock(|superblock| superblock.ro_compat() & LARGE_FILE == 0)
        {
            self.allocator.change_superblock(|superblock| superblock.add_features(0, LARGE_FILE));
        }
    }

    /// Reads the blocks that a change will write partly, before a transaction, which must not wait
    /// for the disk.
    pub(crate) fn warm_edges(&self, inode: &Inode, from: u64, to: u64) {
        let size = self.geometry.block_size as u64;
        let block = inode.state().fields.block;
        for edge in [from, to] {
            if edge % size != 0
                && let Ok(extent) = self.find_extent(inode.number, &block, edge / size, 1)
                && let Some(start) = extent.start
            {
                // A later reader reports the error.
                let _ = self.cache.load(start, 1);
            }
        }
    }

    /// Zeroes the bytes after `end` in its block.
    pub(crate) fn clear_tail(&self, inode: &Inode, end: u64) -> Result<(), Errno> {
        self.clear_part(inode, end, end.next_multiple_of(self.geometry.block_size as u64))
    }

    /// Zeroes a part of one block, unless the block is a hole.
    pub(crate) fn clear_part(&self, inode: &Inode, from: u64, to: u64) -> Result<(), Errno> {
        let size = self.geometry.block_size as u64;
        if from >= to {
            return Ok(());
        }
        let block = inode.state().fields.block;
        let Some(start) = self.find_extent(inode.number, &block, from / size, 1)?.start else {
            return Ok(());
        };
        let first = usize::try_from(from % size).unwrap_or(0);
        let length = usize::try_from(to - from).unwrap_or(0);
        self.cache.modify(start, Class::Data, |bytes| bytes[first..first + length].fill(0))
    }

    /// Changes the size as truncate(2).
    pub(crate) fn truncate(&self, inode: &Arc<Inode>, size: u64) -> Result<(), Errno> {
        self.throttle()?;
        let _lock = inode.lock.write().unwrap_or_else(PoisonError::into_inner);
        let old = self.changeable_file(inode, true)?;
        if size > self.geometry.largest_file() {
            return Err(Errno::FBIG);
        }
        let least = size.min(old);
        self.warm_edges(inode, least, least);
        let blocks = size.div_ceil(self.geometry.block_size as u64);
        if size < old {
            self.warm(inode, blocks);
        }
        self.modify(|transaction| {
            self.clear_tail(inode, least)?;
            if size <= old {
                self.free_range(transaction, inode, blocks, u64::MAX)?;
            }
            self.resize(inode, size, false);
            let now: Time = (self.now)();
            self.change_inode(inode, |state| (state.fields.mtime, state.fields.ctime) = (now, now));
            Ok(())
        })
    }
}
