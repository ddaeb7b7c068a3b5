//! Inodes in memory, and the references to them.

use std::collections::HashMap;

use kumihimo::sync::atomic::AtomicU64;
use kumihimo::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use kumihimo_store::{Attributes, Kind, Node};

use super::index::Index;
use super::order::Thing;
use crate::layout::inode::Fields;

const SHARDS: usize = 64;
/// Inodes of a shard that are kept although nobody refers to them.
const KEPT: usize = 512;

/// The root directory's number.
pub const ROOT: u32 = 2;

/// An inode.
pub struct Inode {
    /// Its number.
    pub number: u32,
    /// Operations on it: shared for those that read. Of a large directory, its index. May be held
    /// while the disk works.
    pub lock: RwLock<Option<Box<Index>>>,
    /// What it says; held for moments only.
    pub(crate) state: Mutex<State>,
    pub(crate) loading: Mutex<()>,
    /// Where the last read ended: one that begins there is sequential.
    pub read_to: AtomicU64,
    /// The last transaction that modified it.
    pub changed: AtomicU64,
}

/// What an inode says.
pub struct State {
    /// Whether what follows was read, or made.
    pub(crate) loaded: bool,
    /// What it says.
    pub fields: Fields,
    /// The bytes under it.
    pub raw: Box<[u8]>,
    /// References that were given out.
    pub references: u64,
    /// A commit has to write it.
    pub dirty: bool,
    /// Made since the last commit: on the disk it is a deleted one.
    pub born: bool,
    /// Its number may be another's.
    pub dead: bool,
    /// Where it was given names since the last commit.
    pub new_names: Vec<Thing>,
    /// Where names that it had lead to another since the last commit: until that is on the disk, a
    /// request for them there finds this one.
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
            read_to: AtomicU64::new(0),
            changed: AtomicU64::new(0),
        }
    }

    /// What it says.
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
    /// What it is; only those are loaded that are something.
    pub fn kind(&self) -> Kind {
        self.fields.kind().unwrap_or(Kind::File)
    }

    /// stat(2).
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
    /// How many there may be before those are dropped that nobody needs.
    pub(crate) sweep: usize,
}

/// The inodes in memory.
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

    /// How many.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).inodes.len())
            .sum()
    }

    /// All without a name.
    pub fn nameless(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.inodes.values().filter(|inode| inode.is_nameless()).map(Arc::clone));
        }
        all
    }

    /// All that a commit has to write.
    pub fn take_dirty(&self) -> Vec<Arc<Inode>> {
        std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Those, without taking them.
    pub fn dirty(&self) -> Vec<u32> {
        self.dirty
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|inode| inode.number)
            .collect()
    }

    /// Whether there are any.
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

    /// Drops an inode that has come to its end.
    pub fn remove(&self, inode: &Arc<Inode>) {
        let mut shard = self.shard(inode.number);
        if shard.inodes.get(&inode.number).is_some_and(|other| Arc::ptr_eq(other, inode)) {
            shard.inodes.remove(&inode.number);
        }
    }
}

/// lost+found as it was found at open.
#[derive(Default)]
pub struct Lost {
    pub(crate) directory: Mutex<Option<Arc<Inode>>>,
}
