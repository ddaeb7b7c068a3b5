//! Inodes in memory, and the references to them.

use std::collections::HashMap;

use kumihimo::sync::atomic::{AtomicBool, AtomicU64};
use kumihimo::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use kumihimo_store::{Attributes, Kind, Node};

use super::index::Index;
use super::order::Thing;
use crate::layout::inode::Fields;

const SHARDS: usize = 64;
/// Number of inodes of a shard that are kept without references.
const KEPT: usize = 512;

/// Number of the root directory.
pub const ROOT: u32 = 2;

/// Inode in memory.
pub struct Inode {
    /// Number of the inode.
    pub number: u32,
    /// Lock of operations on the inode, shared for reads. Contains the index of a large directory.
    /// May be held during disk accesses.
    pub lock: RwLock<Option<Box<Index>>>,
    /// Decoded contents; held briefly.
    pub(crate) state: Mutex<State>,
    pub(crate) loading: Mutex<()>,
    /// Whether the block map of a directory was checked.
    pub is_checked: AtomicBool,
    /// End of the last read: a read that starts there is sequential.
    pub read_to: AtomicU64,
    /// Last transaction that modified the inode.
    pub changed: AtomicU64,
}

/// Contents and bookkeeping of an inode.
pub struct State {
    /// Whether the inode was read or created, so that the other fields are valid.
    pub(crate) loaded: bool,
    /// Decoded inode.
    pub fields: Fields,
    /// Encoded inode.
    pub raw: Box<[u8]>,
    /// Number of references held by the store's user.
    pub references: u64,
    /// Whether a commit must write the inode.
    pub dirty: bool,
    /// Whether it was created since the last commit; the disk has a deleted inode of this number.
    pub born: bool,
    /// Whether it has ended; its number may belong to another inode.
    pub dead: bool,
    /// Containers in which it received names since the last commit.
    pub new_names: Vec<Thing>,
    /// Containers in which its former names lead to another inode since the last commit. Until that
    /// is on the disk, these names lead to this inode there.
    pub taken_over: Vec<Thing>,
}

impl Inode {
    fn new(number: u32) -> Inode {
        let state = State {
            loaded: false,
            fields: Fields::read(&[0; 128]),
            raw: Box::default(),
            references: 0,
            dirty: false,
            born: false,
            dead: false,
            new_names: Vec::new(),
            taken_over: Vec::new(),
        };
        Inode {
            number,
            lock: RwLock::new(None),
            state: Mutex::new(state),
            loading: Mutex::new(()),
            is_checked: AtomicBool::new(false),
            read_to: AtomicU64::new(0),
            changed: AtomicU64::new(0),
        }
    }

    /// Locks the inode's contents.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inode {
    fn is_nameless(&self) -> bool {
        let state = self.state();
        state.loaded && !state.dead && state.fields.links == 0
    }
}

impl State {
    /// Returns the kind of the inode; inodes of invalid kind are never loaded.
    pub fn kind(&self) -> Kind {
        self.fields.kind().unwrap_or(Kind::File)
    }

    /// Returns the attributes of stat(2).
    pub fn attributes(&self, number: u32, block_size: usize) -> Attributes {
        let fields = &self.fields;
        Attributes {
            node: Node(u64::from(number)),
            size: fields.size,
            blocks: u64::from(fields.sectors),
            atime: fields.atime,
            mtime: fields.mtime,
            ctime: fields.ctime,
            kind: self.kind(),
            permissions: u32::from(fields.mode) & 0o7777,
            links: u32::from(fields.links),
            uid: fields.uid,
            gid: fields.gid,
            device: fields.device(),
            block_size: u32::try_from(block_size).unwrap_or(0),
        }
    }
}

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) inodes: HashMap<u32, Arc<Inode>, foldhash::fast::FixedState>,
    /// Number of inodes at which unreferenced inodes are dropped.
    pub(crate) sweep: usize,
}

/// Inodes in memory.
pub struct Nodes {
    pub(crate) shards: Box<[Mutex<Shard>]>,
    pub(crate) dirty: Mutex<Vec<Arc<Inode>>>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), dirty: Mutex::default() }
    }
}

impl Nodes {
    pub(crate) fn shard(&self, number: u32) -> MutexGuard<'_, Shard> {
        self.shards[number as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of inodes in memory.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).inodes.len())
            .sum()
    }

    /// Returns all inodes without a name.
    pub fn nameless(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.inodes.values().filter(|inode| inode.is_nameless()).map(Arc::clone));
        }
        all
    }

    /// Takes all inodes that a commit must write.
    pub fn take_dirty(&self) -> Vec<Arc<Inode>> {
        std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the numbers of all inodes that a commit must write.
    pub fn dirty(&self) -> Vec<u32> {
        self.dirty
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|inode| inode.number)
            .collect()
    }

    /// Returns whether a commit must write any inode.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn find(&self, number: u32) -> Option<Arc<Inode>> {
        self.shard(number).inodes.get(&number).map(Arc::clone)
    }

    pub(crate) fn find_or_add(&self, number: u32) -> Arc<Inode> {
        let mut guard = self.shard(number);
        let shard = &mut *guard;
        if let Some(inode) = shard.inodes.get(&number) {
            return Arc::clone(inode);
        }
        if shard.inodes.len() >= shard.sweep.max(KEPT) {
            shard.inodes.retain(|_, inode| {
                let state = inode.state();
                Arc::strong_count(inode) > 1 || state.references > 0 || state.dirty
            });
            shard.sweep = 2 * shard.inodes.len();
        }
        let inode = Arc::new(Inode::new(number));
        shard.inodes.insert(number, Arc::clone(&inode));
        inode
    }

    /// Drops an inode that has ended.
    pub fn remove(&self, inode: &Arc<Inode>) {
        let mut shard = self.shard(inode.number);
        if shard.inodes.get(&inode.number).is_some_and(|other| Arc::ptr_eq(other, inode)) {
            shard.inodes.remove(&inode.number);
        }
    }
}

/// The directory lost+found, as found at open.
#[derive(Default)]
pub struct Lost {
    pub(crate) directory: Mutex<Option<Arc<Inode>>>,
}
