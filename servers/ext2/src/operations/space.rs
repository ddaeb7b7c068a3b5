//! Holes of files: punching, filling and finding them.

use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::{Errno, Kind, Seek};

use crate::Ext2;
use crate::memory::cache::Class;
use crate::memory::inodes::Inode;

/// `FALLOC_FL_*` of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;
/// Number of blocks that are allocated or zeroed between two checks of the amount of modified data.
const AT_ONCE: u32 = 1024;

impl Ext2 {
    /// Executes fallocate(2). Allocated blocks are written as zeroes, because ext2 has no unwritten
    /// blocks.
    pub(crate) fn allocate_range(
        &self,
        inode: &Arc<Inode>,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let (punch, zero) = match mode {
            0 | KEEP_SIZE => (false, false),
            _ if mode == PUNCH_HOLE | KEEP_SIZE => (true, false),
            ZERO_RANGE => (false, true),
            _ if mode == ZERO_RANGE | KEEP_SIZE => (false, true),
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.throttle()?;
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        if length == 0 {
            return Err(Errno::INVAL);
        }
        if end > self.geometry.largest_file() {
            return Err(Errno::FBIG);
        }
        let _lock = inode.lock.write().unwrap_or_else(PoisonError::into_inner);
        let old = match self.changeable_file(inode, punch || zero) {
            Err(Errno::INVAL) => return Err(Errno::NODEV),
            other => other?,
        };
        let size = self.geometry.block_size as u64;
        // e2fsck considers blocks after the end of a file as damage. The kernel's fs/ext2 does not
        // support this mode either.
        if mode & KEEP_SIZE != 0 && !punch && end.div_ceil(size) > old.div_ceil(size) {
            return Err(Errno::OPNOTSUPP);
        }
        if punch {
            self.warm_edges(inode, offset, end);
            self.warm(inode, offset / size);
            self.modify(|transaction| {
                let (first, last) = (offset.div_ceil(size), end / size);
                if first <= last {
                    self.clear_part(inode, offset, first * size)?;
                    self.clear_part(inode, last * size, end)?;
                    if first < last {
                        self.free_range(transaction, inode, first, last)?;
                    }
                } else {
                    self.clear_part(inode, offset, end)?;
                }
                Ok(())
            })?;
        } else {
            self.check_map(inode, offset / size, end.div_ceil(size))?;
            if old < end && mode & KEEP_SIZE == 0 {
                self.warm_edges(inode, old, old);
                self.modify(|_| Ok(self.clear_tail(inode, old)?))?;
            }
            if let Err(errno) = self.fill(inode, offset / size, end.div_ceil(size)) {
                // There were no blocks after the end before, so all blocks there now are from this
                // call. The first error is reported.
                let _ = self.modify(|transaction| {
                    self.free_range(transaction, inode, old.div_ceil(size), u64::MAX)?;
                    Ok(())
                });
                return Err(errno);
            }
            if zero {
                // Zeroed only once all blocks are allocated: after ENOSPC the caller finds its data
                // unchanged.
                self.zero(inode, offset, end)?;
            }
            if mode & KEEP_SIZE == 0 {
                self.modify(|_| {
                    self.resize(inode, end, true);
                    Ok(())
                })?;
            }
        }
        let now = (self.now)();
        self.modify(|_| {
            self.change_inode(inode, |state| (state.fields.mtime, state.fields.ctime) = (now, now));
            Ok(())
        })
    }

    /// Fills holes with zeroes, in steps, so that commits can run in between.
    fn fill(&self, inode: &Arc<Inode>, from: u64, to: u64) -> Result<(), Errno> {
        let mut at = from;
        while at < to {
            self.throttle()?;
            at = self.modify(|transaction| {
                let want = u32::try_from(to - at).unwrap_or(u32::MAX).min(AT_ONCE);
                let (start, count, new) = self.fill_extent(transaction, inode, at, want)?;
                if new {
                    (start..start + count)
                        .for_each(|block| self.cache.put_zeroes(block, Class::Data));
                }
                Ok(at + u64::from(count))
            })?;
        }
        Ok(())
    }

    /// Zeroes a range without holes, in steps, so that commits can run in between.
    fn zero(&self, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<(), Errno> {
        let size = self.geometry.block_size as u64;
        self.warm_edges(inode, offset, end);
        let mut at = offset;
        while at < end {
            self.throttle()?;
            at = self.modify(|_| {
                if !at.is_multiple_of(size) || end - at < size {
                    let next = end.min((at / size + 1) * size);
                    self.clear_part(inode, at, next)?;
                    return Ok(next);
                }
                let block = inode.state().fields.block;
                let want = u32::try_from((end - at) / size).unwrap_or(u32::MAX).min(AT_ONCE);
                let extent = self.find_extent(inode.number, &block, at / size, want)?;
                if let Some(start) = extent.start {
                    (start..start + extent.count).for_each(|block| self.cache.clear(block));
                }
                Ok(at + u64::from(extent.count) * size)
            })?;
        }
        Ok(())
    }

    /// Executes lseek(2) to data or a hole.
    pub(crate) fn seek_in(&self, inode: &Inode, offset: u64, what: Seek) -> Result<u64, Errno> {
        let _lock = inode.lock.read().unwrap_or_else(PoisonError::into_inner);
        let (size, block, kind) = {
            let state = inode.state();
            (state.fields.size, state.fields.block, state.kind())
        };
        if kind != Kind::File {
            return Err(Errno::INVAL);
        }
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let unit = self.geometry.block_size as u64;
        let found = self.walk_map(inode.number, &block, offset / unit, |run| {
            let at = offset.max(run.logical * unit).min(size);
            let is_it = at == size || run.start.is_some() == (what == Seek::Data);
            Ok(is_it.then_some(at))
        })?;
        match (found, what) {
            (Some(at), _) if at < size => Ok(at),
            // Every file has an implicit hole at its end (lseek(2)).
            (_, Seek::Hole) => Ok(size),
            (_, Seek::Data) => Err(Errno::NXIO),
        }
    }
}
