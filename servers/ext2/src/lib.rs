//! The ext2 file system, revision 1, as a [`Store`](kumihimo_store::Store) on a
//! [`Disk`](kumihimo_store::Disk): read and written as Linux does, and kept so that `e2fsck -p`
//! repairs it without a question after a power cut (without a journal: see `memory/order.rs`),
//! unless a directory was being renamed at that moment.
//!
//! Rooms, from low to high:
//!
//! - `layout`: structures on the disk.
//! - `memory`: what is kept in memory of them, each behind a lock of its own.
//! - `change`: how changes reach the disk, by transactions and commits.
//! - `operations`: the operations of a store.
//! - `open.rs`: the checks on which everything else relies. Whatever is read later is checked when
//!   it is read.
//!
//! Locks, outermost first: `tree` (directories that move), an inode's `lock` (several: by rising
//! number), the gate (shared by changes, exclusive for the moment in which a commit collects what
//! it writes), then those that are held for moments: bitmaps, order, a shard of the inodes, an
//! inode's state, a shard of the cache. Only the first two are held while the disk works, and the
//! gate in the rare case that something is not in memory which was read shortly before.
#![forbid(unsafe_code)]

mod change;
mod layout;
mod memory;
mod open;
mod operations;

use kumihimo::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use kumihimo::sync::{Arc, Mutex, RwLock};
use kumihimo_store::{Errno, Time};

pub use memory::complaint::Listener;
pub use open::{OpenError, Settings};

/// An ext2 file system that is mounted.
pub struct Ext2 {
    geometry: layout::group::Geometry,
    incompat: u32,
    cache: memory::cache::Cache,
    allocator: memory::bitmaps::Allocator,
    nodes: memory::inodes::Nodes,
    order: Mutex<memory::order::Order>,
    gate: RwLock<()>,
    tree: Mutex<()>,
    commits: Mutex<memory::commits::Commits>,
    lost: memory::inodes::Lost,
    /// The number of the transaction that is open.
    transaction: AtomicU64,
    broken: AtomicBool,
    closed: AtomicBool,
    generation: AtomicU32,
    complaints: Arc<memory::complaint::Complaints>,
    now: fn() -> Time,
    read_only: bool,
    /// `s_state` as it was found.
    state_before: u16,
}

/// What a mounted file system has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks that were found in memory.
    pub hits: u64,
    /// Blocks that were read from the disk.
    pub misses: u64,
    /// Bytes that wait to be written.
    pub dirty_bytes: usize,
    /// Inodes in memory.
    pub inodes: usize,
    /// Commits that were carried out.
    pub commits: u64,
    /// How often there was reason to complain of damage.
    pub complaints: u64,
}

impl Ext2 {
    /// What was counted until now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (hits, misses) = self.cache.counts();
        Counters {
            hits,
            misses,
            dirty_bytes: self.cache.dirty_bytes(),
            inodes: self.nodes.len(),
            commits: self.transaction.load(Relaxed) - 1,
            complaints: self.complaints.count(),
        }
    }

    /// `EROFS` where nothing may be changed: so it was opened, or a commit failed.
    pub(crate) fn writable(&self) -> Result<(), Errno> {
        if self.read_only || self.broken.load(Relaxed) || self.closed.load(Relaxed) {
            Err(Errno::ROFS)
        } else {
            Ok(())
        }
    }

    pub(crate) fn says_kinds(&self) -> bool {
        self.incompat & layout::superblock::FILETYPE != 0
    }
}

impl std::fmt::Debug for Ext2 {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ext2").field("complaints", &self.complaints).finish_non_exhaustive()
    }
}
