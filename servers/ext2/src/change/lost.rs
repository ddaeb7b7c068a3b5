//! lost+found: the place where a replaced file has a name during a commit.
//!
//! rename(2) may let a name lead to another inode. The old inode must not be deleted before the new
//! name is on the disk, because a power cut would then leave neither. Afterwards it must not be
//! without a name, which `e2fsck -p` does not repair. Therefore a commit first writes a name for
//! the old inode into an empty block of lost+found, as e2fsck itself would, and removes it at the
//! end. The name never exists in memory.

use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::Kind;

use crate::Ext2;
use crate::change::transaction::{Outcome, Stop};
use crate::layout::dirent;
use crate::memory::inodes::ROOT;
use crate::memory::order::Order;

/// Size of an entry with the longest of these names: `#` and ten digits.
const ENTRY: usize = 20;

/// Block of lost+found, with the names and without them.
pub struct Shelter {
    /// Number of the block.
    pub block: u32,
    /// Contents written first, with the names.
    pub with: Arc<[u8]>,
    /// Contents written last, without the names.
    pub without: Arc<[u8]>,
}

impl Ext2 {
    /// Finds lost+found, if it exists.
    pub(crate) fn find_lost(&self) {
        let found = self.inode(ROOT).and_then(|root| self.look_up(&root, b"lost+found"));
        let Ok(Some(inode)) = found else { return };
        {
            let mut state = inode.state();
            // Any user may have given the name to another kind of file.
            if state.kind() != Kind::Directory {
                return;
            }
            state.references += 1;
        }
        *self.lost.directory.lock().unwrap_or_else(PoisonError::into_inner) = Some(inode);
    }

    /// Records that an inode lost its last name to another inode. Returns `Commit` if there is no
    /// room for one more.
    pub(crate) fn replaced(&self, number: u32) -> Outcome<()> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.replaced.len() >= self.geometry.block_size / ENTRY - 1 {
            return Err(Stop::Commit);
        }
        order.replaced.push(number);
        Ok(())
    }

    /// Returns the block of lost+found for the replaced inodes. `None` if there are none, or if no
    /// block is suitable; they are then deleted before their names change.
    pub(crate) fn shelter(&self, order: &Order) -> Option<Shelter> {
        if order.replaced.is_empty() {
            return None;
        }
        let lost = self.lost.directory.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        {
            let state = lost.state();
            if state.fields.links == 0 || state.born {
                return None;
            }
        }
        let size = self.geometry.block_size;
        let empty = |bytes: &[u8]| {
            let mut entries = dirent::entries(bytes, self.geometry.inodes).flatten();
            entries.next().is_some_and(|first| first.number == 0 && first.length == size)
        };
        let (block, without) = self.blocks_of(&lost).into_iter().find_map(|block| {
            // Read from the disk if necessary: without a name here, a power cut loses the replaced
            // file.
            let bytes: Arc<[u8]> = self.cache.read(block, |bytes| bytes.into()).ok()?;
            // A block modified since the last commit differs from the disk.
            (!self.cache.is_modified(block) && empty(&bytes)).then_some((block, bytes))
        })?;
        let mut with = without.to_vec();
        let names: Vec<String> = order.replaced.iter().map(|number| format!("#{number}")).collect();
        let mut at = 0;
        for (index, (name, &number)) in names.iter().zip(&order.replaced).enumerate() {
            let last = index + 1 == names.len();
            let length = if last { size - at } else { dirent::needed(name.len()) };
            dirent::put(&mut with, at, length, number, 0, name.as_bytes());
            at += length;
        }
        Some(Shelter { block, with: with.into(), without })
    }
}
