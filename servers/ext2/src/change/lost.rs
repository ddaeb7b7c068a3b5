//! lost+found: where a replaced file has a name while a commit is under way.
//!
//! When rename(2) lets a name lead to another inode, the old one must not be gone before the name
//! is written (a power cut would leave neither), and must not be without a name afterwards
//! (`e2fsck -p` does not repair that). So a commit first writes a name for it into an empty block
//! of lost+found, where e2fsck itself would put it, and takes it out at the end. In memory it never
//! is.

use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::Kind;

use crate::Ext2;
use crate::change::transaction::{Outcome, Stop};
use crate::layout::dirent;
use crate::memory::inodes::ROOT;
use crate::memory::order::Order;

/// Room for the longest of these names: `#` and ten digits.
const ENTRY: usize = 20;

/// A block of lost+found, with the names and without.
pub struct Shelter {
    /// Which.
    pub block: u32,
    /// Written first.
    pub with: Arc<[u8]>,
    /// Written last.
    pub without: Arc<[u8]>,
}

impl Ext2 {
    /// Finds lost+found, if there is one.
    pub(crate) fn find_lost(&self) {
        let found = self.inode(ROOT).and_then(|root| self.look_up(&root, b"lost+found"));
        let Ok(Some(inode)) = found else { return };
        {
            let mut state = inode.state();
            // Anyone may give the name to something else.
            if state.kind() != Kind::Directory {
                return;
            }
            state.references += 1;
        }
        *self.lost.directory.lock().unwrap_or_else(PoisonError::into_inner) = Some(inode);
    }

    /// An inode lost its last name to another. `Commit`: there is no room for one more.
    pub(crate) fn replaced(&self, number: u32) -> Outcome<()> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.replaced.len() >= self.geometry.block_size / ENTRY - 1 {
            return Err(Stop::Commit);
        }
        order.replaced.push(number);
        Ok(())
    }

    /// The names of those that were replaced; `None`: there are none, or there is no place for
    /// them: then they go before their names lead elsewhere.
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
            // From the disk if need be: what is replaced is lost in a power cut if it has no name
            // here.
            let bytes: Arc<[u8]> = self.cache.read(block, |bytes| bytes.into()).ok()?;
            // A directory's block that changed since the last commit is not what the disk has.
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
