//! Inodes by number: loading, checking, changing and forgetting.

use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::{Attributes, Entry, Errno, Kind, Node};

use crate::Ext2;
use crate::layout::inode::Fields;
use crate::memory::inodes::{Inode, State};

impl Ext2 {
    /// Returns the inode of a node that the store has returned before.
    pub(crate) fn held(&self, node: Node) -> Result<Arc<Inode>, Errno> {
        let number = u32::try_from(node.0).map_err(|_| Errno::STALE)?;
        let inode = self.nodes.find(number).ok_or(Errno::STALE)?;
        let state = inode.state();
        let stale = state.dead || !state.loaded;
        drop(state);
        if stale { Err(Errno::STALE) } else { Ok(inode) }
    }

    /// Returns the inode like [`held`](Ext2::held), if it is a directory.
    pub(crate) fn held_directory(&self, node: Node) -> Result<Arc<Inode>, Errno> {
        let inode = self.held(node)?;
        if inode.state().kind() == Kind::Directory { Ok(inode) } else { Err(Errno::NOTDIR) }
    }

    /// Returns an inode to which a name leads, from memory or from the disk.
    pub(crate) fn inode(&self, number: u32) -> Result<Arc<Inode>, Errno> {
        if !self.geometry.is_inode(number) {
            self.complaints.damage(format_args!(
                "inode {number}: a name leads to it, but its number is reserved or invalid"
            ));
            return Err(Errno::IO);
        }
        let inode = self.nodes.find_or_add(number);
        if inode.state().loaded {
            return Ok(inode);
        }
        let loading = inode.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if !inode.state().loaded {
            let (block, at) = self.geometry.inode_place(number);
            let size = self.geometry.inode_size;
            let raw: Box<[u8]> =
                self.cache.read(block, |bytes| bytes[at..at + size].into()).inspect_err(|_| {
                    self.complaints.say(format_args!(
                        "inode {number}: reading block {block} of its table failed"
                    ));
                })?;
            let fields = Fields::read(&raw);
            self.check_inode(number, &fields)?;
            let mut state = inode.state();
            (state.fields, state.raw, state.loaded) = (fields, raw, true);
        }
        drop(loading);
        Ok(inode)
    }

    fn check_inode(&self, number: u32, fields: &Fields) -> Result<(), Errno> {
        let block_size = self.geometry.block_size as u64;
        let wrong = match fields.kind() {
            _ if fields.links == 0 => "a name leads to it, but it is deleted",
            None => "its mode contains no valid kind of file",
            _ if fields.flags & 0x8_0000 != 0 => "it has ext4's extents",
            _ if fields.flags & 0x1000_0000 != 0 => "it has ext4's inline data",
            _ if fields.acl_block != 0 && !self.geometry.is_for_files(fields.acl_block) => {
                "its block of attributes is beyond the medium or in the file system's structures"
            }
            Some(Kind::Directory)
                if fields.size == 0 || !fields.size.is_multiple_of(block_size) =>
            {
                "a directory with an invalid size"
            }
            Some(Kind::Directory) if fields.size > u64::from(self.geometry.blocks) * block_size => {
                "a directory larger than the medium"
            }
            Some(Kind::File) if fields.size > self.geometry.largest_file() => {
                "a file larger than the maximum"
            }
            Some(Kind::Symlink) if fields.size == 0 || fields.size > block_size => {
                "a symbolic link with an invalid length"
            }
            Some(Kind::Symlink)
                if fields.sectors as usize
                    <= if fields.acl_block == 0 { 0 } else { self.geometry.block_size / 512 }
                    && fields.size >= 60 =>
            {
                "a symbolic link without a block for its target"
            }
            _ => return Ok(()),
        };
        self.complaints.damage(format_args!("inode {number}: {wrong}"));
        Err(Errno::IO)
    }

    /// Adds an inode that was just created.
    pub(crate) fn add_inode(&self, number: u32, fields: Fields, raw: Box<[u8]>) -> Arc<Inode> {
        let inode = self.nodes.find_or_add(number);
        {
            let mut state = inode.state();
            (state.fields, state.raw, state.loaded, state.born) = (fields, raw, true, true);
            self.mark(&inode, &mut state);
        }
        inode
    }

    /// Changes an inode in memory; the next commit writes it.
    pub(crate) fn change_inode<R>(
        &self,
        inode: &Arc<Inode>,
        change: impl FnOnce(&mut State) -> R,
    ) -> R {
        let mut state = inode.state();
        let result = change(&mut state);
        self.mark(inode, &mut state);
        result
    }

    fn mark(&self, inode: &Arc<Inode>, state: &mut State) {
        inode.changed.store(self.transaction.load(Relaxed), Relaxed);
        if !std::mem::replace(&mut state.dirty, true) {
            self.nodes.dirty.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(inode));
        }
    }

    /// Adds a reference and returns the inode's attributes. `ENOENT` if the inode has ended
    /// meanwhile.
    pub(crate) fn entry(&self, inode: &Inode) -> Result<Entry, Errno> {
        let mut state = inode.state();
        if state.dead {
            return Err(Errno::NOENT);
        }
        state.references += 1;
        let attributes = state.attributes(inode.number, self.geometry.block_size);
        Ok(Entry { generation: u64::from(state.fields.generation), attributes })
    }

    /// Releases references. An inode without a name ends with its last reference.
    pub(crate) fn forget_inode(&self, node: Node, references: u64) {
        let Some(inode) = u32::try_from(node.0).ok().and_then(|number| self.nodes.find(number))
        else {
            return;
        };
        let ends = {
            let mut state = inode.state();
            state.references = state.references.saturating_sub(references);
            state.references == 0 && state.loaded && state.fields.links == 0
        };
        if ends {
            self.end(&inode);
        }
    }

    /// Returns the attributes of stat(2) of an inode in memory.
    pub(crate) fn show(&self, node: Node) -> Result<Attributes, Errno> {
        let number = u32::try_from(node.0).map_err(|_| Errno::STALE)?;
        let shard = self.nodes.shard(number);
        let inode = shard.inodes.get(&number).ok_or(Errno::STALE)?;
        let state = inode.state();
        if state.dead || !state.loaded {
            return Err(Errno::STALE);
        }
        Ok(state.attributes(number, self.geometry.block_size))
    }
}
