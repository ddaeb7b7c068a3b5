//! The ext2 file system, revision 1, as a [`Store`](kumihimo_store::Store) on a
//! [`Disk`](kumihimo_store::Disk).
//!
//! It reads and writes as Linux does. There is no journal. The order of writes (`memory/order.rs`)
//! lets `e2fsck -p` repair the file system after a power cut without a question. The exception is a
//! directory that was being renamed.
//!
//! Modules, from low to high:
//!
//! - `layout`: structures on the disk.
//! - `memory`: their state in memory, each structure behind its own lock.
//! - `change`: transactions and commits, by which changes reach the disk.
//! - `operations`: the operations of a store.
//! - `open.rs`: checks at open, on which all other code relies. Data read later is checked when it
//!   is read.
//!
//! Lock order, outermost first: `tree` (moving directories), an inode's `lock` (several: by
//! ascending number), and the gate, which changes share and a commit takes exclusively while it
//! collects data. Then come the locks held briefly: bitmaps, order, a shard of the inodes, an
//! inode's state, a shard of the cache. Only the first two are held during disk accesses. The gate
//! may also be, in the rare case that a block read shortly before has been evicted.
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

/// Mounted ext2 file system.
pub struct Ext2 {
    geometry: layout::group::Geometry,
    incompat: u32,
    cache: memory::cache::Cache,
    allocator: memory::bitmaps::Allocator,
    nodes: memory::inodes::Nodes,
    claims: Arc<memory::claims::Claims>,
    order: Mutex<memory::order::Order>,
    gate: RwLock<()>,
    tree: Mutex<()>,
    commits: Mutex<memory::commits::Commits>,
    lost: memory::inodes::Lost,
    /// Number of the open transaction.
    transaction: AtomicU64,
    broken: AtomicBool,
    closed: AtomicBool,
    generation: AtomicU32,
    complaints: Arc<memory::complaint::Complaints>,
    now: fn() -> Time,
    read_only: bool,
    /// `s_state` as found at open.
    state_before: u16,
}

/// Counters of a mounted file system since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks found in memory.
    pub hits: u64,
    /// Blocks read from the disk.
    pub misses: u64,
    /// Bytes of modified data that are not written yet.
    pub dirty_bytes: usize,
    /// Inodes in memory.
    pub inodes: usize,
    /// Completed commits.
    pub commits: u64,
    /// Number of times that damage was found.
    pub complaints: u64,
}

impl Ext2 {
    /// Returns the current counters.
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

    /// Returns `EROFS` if changes are not allowed, because the store was opened read-only, a commit
    /// failed, or the store is closed.
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
