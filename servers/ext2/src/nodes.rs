//! Inodes in memory, and the references to them.

use std::collections::HashMap;

use kumihimo::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kumihimo::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use kumihimo_store::{Attributes, Entry, Errno, Kind, Node};

use crate::Ext2;
use crate::index::Index;
use crate::layout::inode::Fields;
use crate::order::Thing;

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
    state: Mutex<State>,
    loading: Mutex<()>,
    /// Where the last read ended: one that begins there is sequential.
    pub read_to: AtomicU64,
    /// The last transaction that modified it.
    pub changed: AtomicU64,
}

/// What an inode says.
pub struct State {
    /// Whether what follows was read, or made.
    loaded: bool,
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
struct Shard {
    inodes: HashMap<u32, Arc<Inode>, foldhash::fast::FixedState>,
    /// How many there may be before those are dropped that nobody needs.
    sweep: usize,
}

/// The inodes in memory.
pub struct Nodes {
    shards: Box<[Mutex<Shard>]>,
    dirty: Mutex<Vec<Arc<Inode>>>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), dirty: Mutex::default() }
    }
}

impl Nodes {
    fn shard(&self, number: u32) -> MutexGuard<'_, Shard> {
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

    fn find(&self, number: u32) -> Option<Arc<Inode>> {
        self.shard(number).inodes.get(&number).map(Arc::clone)
    }

    fn find_or_add(&self, number: u32) -> Arc<Inode> {
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

impl Ext2 {
    /// The inode behind a node that was given out.
    pub(crate) fn held(&self, node: Node) -> Result<Arc<Inode>, Errno> {
        let number = u32::try_from(node.0).map_err(|_| Errno::STALE)?;
        let inode = self.nodes.find(number).ok_or(Errno::STALE)?;
        let state = inode.state();
        let stale = state.dead || !state.loaded;
        drop(state);
        if stale { Err(Errno::STALE) } else { Ok(inode) }
    }

    /// As [`held`](Ext2::held), of a directory.
    pub(crate) fn held_directory(&self, node: Node) -> Result<Arc<Inode>, Errno> {
        let inode = self.held(node)?;
        if inode.state().kind() == Kind::Directory { Ok(inode) } else { Err(Errno::NOTDIR) }
    }

    /// An inode to which a name leads: from memory or from the disk.
    pub(crate) fn inode(&self, number: u32) -> Result<Arc<Inode>, Errno> {
        if !self.geometry.is_inode(number) {
            self.complaints.damage(format_args!(
                "inode {number}: a name leads to it, but it is reserved or cannot be"
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
                        "inode {number}: its table's block {block} cannot be read"
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
            None => "its mode says no kind of file",
            _ if fields.flags & 0x8_0000 != 0 => "it has ext4's extents",
            _ if fields.flags & 0x1000_0000 != 0 => "it has ext4's inline data",
            _ if fields.acl_block != 0 && !self.geometry.is_for_files(fields.acl_block) => {
                "its block of attributes is beyond the medium or in the file system's own structures"
            }
            Some(Kind::Directory)
                if fields.size == 0 || !fields.size.is_multiple_of(block_size) =>
            {
                "a directory with an impossible size"
            }
            Some(Kind::Directory) if fields.size > u64::from(self.geometry.blocks) * block_size => {
                "a directory larger than the medium"
            }
            Some(Kind::File) if fields.size > self.geometry.largest_file() => {
                "a file larger than can be"
            }
            Some(Kind::Symlink) if fields.size == 0 || fields.size > block_size => {
                "a symbolic link with an impossible length"
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

    /// An inode just made, in memory.
    pub(crate) fn add_inode(&self, number: u32, fields: Fields, raw: Box<[u8]>) -> Arc<Inode> {
        let inode = self.nodes.find_or_add(number);
        {
            let mut state = inode.state();
            (state.fields, state.raw, state.loaded, state.born) = (fields, raw, true, true);
            self.mark(&inode, &mut state);
        }
        inode
    }

    /// Changes what an inode says; the next commit writes it.
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

    /// Counts a reference and shows the inode. `ENOENT`: it has come to its end meanwhile.
    pub(crate) fn entry(&self, inode: &Inode) -> Result<Entry, Errno> {
        let mut state = inode.state();
        if state.dead {
            return Err(Errno::NOENT);
        }
        state.references += 1;
        let attributes = state.attributes(inode.number, self.geometry.block_size);
        Ok(Entry { generation: u64::from(state.fields.generation), attributes })
    }

    /// Gives references back; an inode without a name ends with its last one.
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

    /// stat(2), of the inode in memory.
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
