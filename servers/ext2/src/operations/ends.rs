//! End of inodes: an inode ends when it has neither a name nor a reference.

use std::collections::HashSet;

use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::{Errno, Kind};

use crate::Ext2;
use crate::change::transaction::{Outcome, Transaction};
use crate::layout::inode::Fields;
use crate::layout::put32;
use crate::memory::inodes::Inode;

impl Ext2 {
    /// Ends an inode that has neither a name nor a reference.
    pub(crate) fn end_if_unused(&self, inode: &Arc<Inode>) {
        let unused = {
            let state = inode.state();
            state.references == 0 && state.fields.links == 0
        };
        if unused {
            self.end(inode);
        }
    }

    /// Frees an inode without a name, and its blocks, unless another thread has done so. e2fsck
    /// finds blocks that cannot be freed.
    pub(crate) fn end(&self, inode: &Arc<Inode>) {
        let mut lock = inode.lock.write().unwrap_or_else(PoisonError::into_inner);
        let has_map = {
            let state = inode.state();
            if state.dead || state.references > 0 || state.fields.links > 0 {
                return;
            }
            state.fields.has_map(self.geometry.block_size)
        };
        *lock = None;
        if has_map {
            self.warm(inode, 0);
        }
        let mut begun = false;
        // A store that cannot be written any more leaves the inode as it is.
        let _ = self.modify(|transaction| {
            if !begun {
                let mut state = inode.state();
                if state.references > 0 {
                    return Ok(());
                }
                state.dead = true;
            }
            begun = true;
            self.free_contents(transaction, inode, has_map)?;
            let (directory, born) = self.change_inode(inode, |state| {
                (state.fields.size, state.fields.sectors) = (0, 0);
                (state.kind() == Kind::Directory, state.born)
            });
            self.nodes.remove(inode);
            self.free_inode(inode.number, directory, born);
            Ok(())
        });
    }

    fn free_contents(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        has_map: bool,
    ) -> Outcome<()> {
        if has_map && let Err(errno) = self.free_range(transaction, inode, 0, u64::MAX) {
            self.complaints.damage(format_args!(
                "inode {}: not all its blocks can be freed: {errno}",
                inode.number
            ));
        }
        let attributes = inode.state().fields.acl_block;
        if attributes != 0 {
            self.drop_attributes(transaction, inode, attributes)?;
        }
        Ok(())
    }

    /// Ends all inodes without a name, even if they are referenced: no operation on them follows.
    pub(crate) fn end_nameless(&self) {
        for inode in self.nodes.nameless() {
            inode.state().references = 0;
            self.end(&inode);
        }
    }

    /// Ends the inodes that an unclean shutdown left on the list of orphans (`s_last_orphan`). The
    /// kernel's ext3 and ext4 maintain this list; this store does not.
    pub(crate) fn end_orphans(&self) -> Result<(), Errno> {
        let mut number = self.allocator.superblock(|superblock| superblock.last_orphan());
        let mut seen = HashSet::new();
        while number != 0 {
            if !self.geometry.is_inode(number) || number == 2 || !seen.insert(number) {
                self.complaints
                    .damage(format_args!("inode {number}: it cannot be on the list of orphans"));
                break;
            }
            let (block, at) = self.geometry.inode_place(number);
            let size = self.geometry.inode_size;
            let mut raw: Box<[u8]> = self.cache.read(block, |bytes| bytes[at..at + size].into())?;
            let fields = Fields::read(&raw);
            let next = fields.dtime;
            if fields.links > 0 {
                // The inode was being truncated.
                let inode = self.inode(number)?;
                self.change_inode(&inode, |state| state.fields.dtime = 0);
                let blocks = fields.size.div_ceil(self.geometry.block_size as u64);
                if fields.kind() == Some(Kind::File) {
                    self.modify(|transaction| {
                        Ok(self.free_range(transaction, &inode, blocks, u64::MAX)?)
                    })?;
                }
            } else if fields.kind().is_some() {
                put32(&mut raw, 20, 1);
                let mut fields = Fields::read(&raw);
                fields.dtime = u32::try_from((self.now)().seconds).unwrap_or(1).max(1);
                if !self.geometry.is_for_files(fields.acl_block) {
                    fields.acl_block = 0;
                }
                let inode = self.add_inode(number, fields, raw);
                inode.state().born = false;
                self.end(&inode);
            }
            number = next;
        }
        self.allocator.change_superblock(|superblock| superblock.no_orphans());
        Ok(())
    }
}
