//! Commits: everything modified is written to the disk, in phases ([`order`](crate::memory::order))
//! with a flush after each.
//!
//! The data is collected while no change is in progress, which is brief: blocks are shared, and the
//! next modification copies them. Then changes continue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::Errno;

use crate::Ext2;
use crate::change::lost::Shelter;
use crate::layout::superblock::{LENGTH, PLACE};
use crate::memory::bitmaps::Resting;
use crate::memory::cache::{AT_ONCE, Class, Modified};
use crate::memory::inodes::Inode;
use crate::memory::order::{FIRST, INODES, Order, Thing};

/// Maximum age of modified data. The server of the store calls [`Ext2::write_back_old`] more often
/// than this.
const OLD: Duration = Duration::from_secs(5);

/// Everything that one commit writes.
struct Snapshot {
    phases: BTreeMap<u8, BTreeMap<u32, Arc<[u8]>>>,
    superblock: Option<[u8; LENGTH]>,
    modified: Vec<Modified>,
    resting: Resting,
}

impl Ext2 {
    /// Writes everything that was modified before the call; concurrent callers share a commit.
    /// Blocks the caller until the data is on the disk.
    ///
    /// # Errors
    /// `EIO`: the disk failed. The store is read-only from then on. The disk's state is like that
    /// after a power cut, and the store cannot predict how e2fsck repairs it.
    pub(crate) fn commit(&self) -> Result<(), Errno> {
        let wanted = self.transaction.load(Relaxed);
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if commits.done >= wanted {
            return Ok(());
        }
        if self.broken.load(Relaxed) {
            return Err(Errno::IO);
        }
        let result = self.commit_now();
        commits.last = Instant::now();
        match result {
            Ok(transaction) => {
                commits.done = transaction;
                Ok(())
            }
            Err(_) => {
                self.broken.store(true, Relaxed);
                self.complaints
                    .say("writing changes failed; the store is read-only from now on; run e2fsck");
                Err(Errno::IO)
            }
        }
    }

    /// Commits the changes of one inode. Does nothing if the last commit contains them.
    pub(crate) fn commit_inode(&self, inode: &Inode) -> Result<(), Errno> {
        let changed = inode.changed.load(Relaxed);
        let done = self.commits.lock().unwrap_or_else(PoisonError::into_inner).done;
        if changed <= done && !self.broken.load(Relaxed) { Ok(()) } else { self.commit() }
    }

    /// Commits if the last commit is at least five seconds old and there are changes. The server of
    /// a store calls this periodically from its own kernel thread or microprocess.
    ///
    /// # Errors
    /// As `Store::sync_all`.
    pub fn write_back_old(&self) -> Result<(), Errno> {
        let last = self.commits.lock().unwrap_or_else(PoisonError::into_inner).last;
        if last.elapsed() >= OLD && self.is_dirty() { self.commit() } else { Ok(()) }
    }

    /// Returns whether there is anything to write.
    pub(crate) fn is_dirty(&self) -> bool {
        self.cache.dirty_bytes() > 0 || self.nodes.is_dirty() || self.allocator.is_dirty()
    }

    /// Makes a writer wait for a commit if too much modified data is in memory.
    pub(crate) fn throttle(&self) -> Result<(), Errno> {
        if self.cache.dirty_bytes() > self.cache.dirty_limit() { self.commit() } else { Ok(()) }
    }

    fn commit_now(&self) -> Result<u64, Errno> {
        // Read beforehand, so that no change waits for the disk while the gate is closed.
        for number in self.nodes.dirty() {
            self.cache.load(self.geometry.inode_place(number).0, 1)?;
        }
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let transaction = self.transaction.fetch_add(1, Relaxed);
        let snapshot = self.snapshot()?;
        drop(gate);
        match self.write(&snapshot) {
            Ok(()) => {
                self.cache.written(&snapshot.modified);
                self.release(snapshot.resting)?;
                Ok(transaction)
            }
            Err(errno) => {
                self.cache.not_written(&snapshot.modified);
                Err(errno)
            }
        }
    }

    fn snapshot(&self) -> Result<Snapshot, Errno> {
        let order = std::mem::take(&mut *self.order.lock().unwrap_or_else(PoisonError::into_inner));
        let last = order.last() + 1;
        let mut phases: BTreeMap<u8, BTreeMap<u32, Arc<[u8]>>> = BTreeMap::new();
        let mut put = |phase: u8, block, data| phases.entry(phase).or_default().insert(block, data);
        let shelter = self.shelter(&order);
        self.snapshot_inodes(&order, last, &shelter, &mut put)?;
        let modified = self.cache.snapshot();
        for modified in &modified {
            let phase = match modified.class {
                Class::Table => continue,
                Class::Indirect if !modified.fresh => INODES,
                Class::Directory if !modified.fresh => order.phase(Thing::Block(modified.block)),
                _ => FIRST,
            };
            put(phase, modified.block, Arc::clone(&modified.data));
        }
        for (block, data) in order.both.iter() {
            put(order.phase(Thing::Both(*block)), *block, Arc::clone(data));
        }
        if let Some(shelter) = shelter {
            put(FIRST, shelter.block, shelter.with);
            put(last + 1, shelter.block, shelter.without);
        }
        let now = u32::try_from((self.now)().seconds).unwrap_or(u32::MAX);
        let maps = self.take_maps(now);
        for (block, data) in maps.blocks {
            put(INODES, block, data);
        }
        let superblock = maps.superblock.map(|superblock| superblock.0);
        Ok(Snapshot { phases, superblock, modified, resting: maps.resting })
    }

    /// Copies inodes into the blocks of their tables. A block gets one version for each phase in
    /// which some of its inodes are written.
    fn snapshot_inodes(
        &self,
        order: &Order,
        last: u8,
        shelter: &Option<Shelter>,
        put: &mut impl FnMut(u8, u32, Arc<[u8]>) -> Option<Arc<[u8]>>,
    ) -> Result<(), Errno> {
        type Written = (u8, usize, Box<[u8]>);
        let mut tables: BTreeMap<u32, Vec<Written>> = BTreeMap::new();
        for inode in self.nodes.take_dirty() {
            let mut state = inode.state();
            state.dirty = false;
            if state.dead && state.born {
                continue;
            }
            state.born = false;
            state.new_names.clear();
            state.taken_over.clear();
            let state = &mut *state;
            state.fields.write(&mut state.raw);
            let (block, at) = self.geometry.inode_place(inode.number);
            let replaced = shelter.is_some() && order.replaced.contains(&inode.number);
            let phase = if replaced { last } else { order.phase(Thing::Inode(inode.number)) };
            tables.entry(block).or_default().push((phase, at, state.raw.clone()));
        }
        for (block, mut inodes) in tables {
            inodes.sort_by_key(|(phase, ..)| *phase);
            let mut bytes = self.cache.read(block, <[u8]>::to_vec)?;
            let mut inodes = inodes.into_iter().peekable();
            while let Some((phase, at, raw)) = inodes.next() {
                bytes[at..at + raw.len()].copy_from_slice(&raw);
                if inodes.peek().is_none_or(|(next, ..)| *next != phase) {
                    put(phase, block, bytes.as_slice().into());
                }
            }
            self.cache.put(block, Class::Table, bytes.into(), false);
        }
        Ok(())
    }

    fn write(&self, snapshot: &Snapshot) -> Result<(), Errno> {
        let disk = self.cache.disk();
        let failed = |error: std::io::Error| {
            self.complaints.say(format_args!("writing to the disk failed: {error}"));
            Errno::IO
        };
        let size = self.geometry.block_size;
        let mut superblock = snapshot.superblock.as_ref();
        for (phase, blocks) in &snapshot.phases {
            let mut run: Vec<u8> = Vec::new();
            let mut start = 0;
            for (&block, data) in blocks {
                let follows =
                    !run.is_empty() && u64::from(block) == start + (run.len() / size) as u64;
                if !follows || run.len() >= AT_ONCE {
                    if !run.is_empty() {
                        disk.write(start * size as u64, &run).map_err(failed)?;
                    }
                    run.clear();
                    start = u64::from(block);
                }
                run.extend_from_slice(data);
            }
            if !run.is_empty() {
                disk.write(start * size as u64, &run).map_err(failed)?;
            }
            if *phase >= INODES
                && let Some(superblock) = superblock.take()
            {
                disk.write(PLACE, superblock).map_err(failed)?;
            }
            disk.flush().map_err(failed)?;
        }
        if let Some(superblock) = superblock {
            disk.write(PLACE, superblock).map_err(failed)?;
            disk.flush().map_err(failed)?;
        }
        Ok(())
    }
}
