//! Ordered walk over a file's block map, in which no indirect block may occur twice.
//!
//! On a hostile disk the indirect blocks of one file may refer to each other or all to one block. A
//! few kilobytes then describe billions of blocks. Every loop over a whole map therefore runs here:
//! visited indirect blocks are remembered, and a second visit ends the walk with `EIO`. A walk
//! costs no more than the indirect blocks that the disk really has.

use std::collections::HashSet;

use kumihimo_store::Errno;

use crate::Ext2;
use crate::layout::get32;
use crate::memory::inodes::Inode;

/// Consecutive blocks of a file that are consecutive on the disk as well, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block within the file.
    pub logical: u64,
    /// First block on the disk; `None` for a hole.
    pub start: Option<u32>,
    /// Number of blocks, at least 1.
    pub count: u64,
}

/// State of a walk.
struct Walk<'a, F> {
    store: &'a Ext2,
    inode: u32,
    from: u64,
    seen: HashSet<u32>,
    visit: F,
}

impl Ext2 {
    /// Calls `visit` with the runs of a block map, from block `from` of the file on, until it
    /// returns a value or the map ends.
    ///
    /// # Errors
    /// `EIO`, after a report, if a block number is invalid or an indirect block occurs twice, and
    /// the errors of `visit`.
    pub(crate) fn walk_map<R>(
        &self,
        inode: u32,
        block: &[u32; 15],
        from: u64,
        visit: impl FnMut(Run) -> Result<Option<R>, Errno>,
    ) -> Result<Option<R>, Errno> {
        let mut walk = Walk { store: self, inode, from, seen: HashSet::new(), visit };
        if let Some(found) = walk.numbers(&block[..12], 0)? {
            return Ok(Some(found));
        }
        let pointers = self.geometry.pointers() as u64;
        let (mut base, mut span) = (12, pointers);
        for (levels, &at) in (1..).zip(&block[12..]) {
            if let Some(found) = walk.tree(at, levels, base, span)? {
                return Ok(Some(found));
            }
            base += span;
            span *= pointers;
        }
        Ok(None)
    }

    /// Checks that the part `from..to` of a map, in blocks, has no indirect block twice. A loop
    /// over this part then takes no more steps than the disk has block numbers.
    pub(crate) fn check_map(&self, inode: &Inode, from: u64, to: u64) -> Result<(), Errno> {
        let block = inode.state().fields.block;
        self.walk_map(inode.number, &block, from, |run| Ok((run.logical >= to).then_some(())))?;
        Ok(())
    }
}

impl<F> Walk<'_, F> {
    /// Visits the blocks below indirect block `at`, which covers `span` blocks from `base` on.
    fn tree<R>(&mut self, at: u32, levels: usize, base: u64, span: u64) -> Result<Option<R>, Errno>
    where
        F: FnMut(Run) -> Result<Option<R>, Errno>,
    {
        if base + span <= self.from {
            return Ok(None);
        }
        if at == 0 {
            return self.run(base, None, span);
        }
        self.store.check_indirect(self.inode, at)?;
        if !self.seen.insert(at) {
            self.store.complaints.damage(format_args!(
                "inode {}: indirect block {at} occurs twice in its block map",
                self.inode
            ));
            return Err(Errno::IO);
        }
        let numbers: Vec<u32> = self
            .store
            .cache
            .read(at, |bytes| bytes.chunks_exact(4).map(|number| get32(number, 0)).collect())?;
        if levels == 1 {
            return self.numbers(&numbers, base);
        }
        let below = span / numbers.len() as u64;
        for (index, number) in (0..).zip(numbers) {
            if let Some(found) = self.tree(number, levels - 1, base + index * below, below)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Visits the blocks of a list of block numbers, of which the first is block `base` of the
    /// file.
    fn numbers<R>(&mut self, numbers: &[u32], base: u64) -> Result<Option<R>, Errno>
    where
        F: FnMut(Run) -> Result<Option<R>, Errno>,
    {
        let skipped = usize::try_from(self.from.saturating_sub(base)).unwrap_or(usize::MAX);
        let mut at = skipped.min(numbers.len());
        while at < numbers.len() {
            let want = u32::try_from(numbers.len() - at).unwrap_or(1);
            let extent = self.store.run(self.inode, numbers[at..].iter().copied(), want)?;
            let found = self.run(base + at as u64, extent.start, u64::from(extent.count))?;
            if found.is_some() {
                return Ok(found);
            }
            at += extent.count as usize;
        }
        Ok(None)
    }

    fn run<R>(&mut self, logical: u64, start: Option<u32>, count: u64) -> Result<Option<R>, Errno>
    where
        F: FnMut(Run) -> Result<Option<R>, Errno>,
    {
        // A hole may begin before the first requested block.
        let skipped = self.from.saturating_sub(logical).min(count);
        if skipped == count {
            return Ok(None);
        }
        (self.visit)(Run { logical: logical + skipped, start, count: count - skipped })
    }
}
