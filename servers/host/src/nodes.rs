//! The table of nodes, and the management of their descriptors.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use kumihimo::sync::{Mutex, MutexGuard, PoisonError};
use kumihimo_store::{Entry, Errno, Node, Result};
use rustix::fs::{Mode, OFlags};

use crate::inode::{Descriptor, Inode, Place};
use crate::resolve::{Identity, Seen, open_beneath};

/// First number for nodes that cannot use their inode's number. Inode numbers are below it.
const FIRST_OWN: u64 = 1 << 63;

/// Limit on the depth of a path, above every valid depth. A longer chain is a cycle of names that
/// were valid at different times.
const DEEPEST: usize = 1 << 16;

pub struct Nodes {
    root: Arc<Inode>,
    table: Mutex<Table>,
    /// Nodes whose descriptors may be closed, in the order in which they got the descriptor or were
    /// last skipped.
    queue: Mutex<VecDeque<Weak<Inode>>>,
    /// Number of open descriptors of nodes.
    open: Arc<AtomicUsize>,
    most: usize,
    /// Number of names removed so far. A place that was read before a removal is not reliable after
    /// it.
    departures: AtomicU64,
}

struct Table {
    by_number: HashMap<Node, (Arc<Inode>, u64)>,
    by_inode: HashMap<((u32, u32), u64), Node>,
    next_own: u64,
}

/// An inode that is about to lose a name, with a descriptor that keeps it accessible.
pub struct Departing {
    identity: Identity,
    descriptor: Arc<Descriptor>,
}

impl Nodes {
    /// Creates a table with the root, and a limit of about `most` descriptors.
    pub fn new(root: OwnedFd, most: usize) -> Result<Nodes> {
        let identity = Seen::at(&root)?.identity;
        let open = Arc::default();
        let root = Arc::new(Inode::new(
            Node(identity.inode),
            identity,
            Descriptor::new(root, &open),
            None,
        ));
        // The root has no counted references.
        let by_number = HashMap::from([(root.number, (Arc::clone(&root), 1))]);
        let by_inode = HashMap::from([((identity.device, identity.inode), root.number)]);
        let table = Mutex::new(Table { by_number, by_inode, next_own: FIRST_OWN });
        Ok(Nodes {
            root,
            table,
            queue: Mutex::default(),
            open,
            most,
            departures: AtomicU64::new(0),
        })
    }

    pub fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode of a node with references.
    pub fn inode(&self, node: Node) -> Result<Arc<Inode>> {
        let table = self.table();
        let (inode, _) = table.by_number.get(&node).ok_or(Errno::STALE)?;
        inode.used.store(true, Ordering::Relaxed);
        Ok(Arc::clone(inode))
    }

    /// Number of removed names. Must be read before the lookup of a name that is then passed to
    /// [`place`](Nodes::place).
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Counts a reference to the inode with the identity in `seen`, if the inode is in the table.
    pub fn known(&self, seen: &Seen) -> Option<(Arc<Inode>, Entry)> {
        self.table().refer(&seen.identity).map(|inode| (Arc::clone(&inode), entry(&inode, seen)))
    }

    /// Counts a reference to the inode with the identity in `seen`. Adds the inode with
    /// `descriptor` if necessary.
    pub fn enter(&self, seen: &Seen, descriptor: OwnedFd) -> (Arc<Inode>, Entry) {
        let mut table = self.table();
        if let Some(inode) = table.refer(&seen.identity) {
            drop(table);
            return (Arc::clone(&inode), entry(&inode, seen));
        }
        let Identity { device, inode, .. } = seen.identity;
        // 0 and 1 are reserved: no inode, and the root of a FUSE mount.
        let is_free = (2..FIRST_OWN).contains(&inode)
            && device == self.root.identity.device
            && !table.by_number.contains_key(&Node(inode));
        let number = if is_free {
            Node(inode)
        } else {
            table.next_own += 1;
            Node(table.next_own)
        };
        let made = Arc::new(Inode::new(
            number,
            seen.identity,
            Descriptor::new(descriptor, &self.open),
            None,
        ));
        // An earlier inode with this number no longer exists. It can no longer be found by its
        // number, only by its node.
        table.by_inode.insert((device, inode), number);
        table.by_number.insert(number, (Arc::clone(&made), 1));
        drop(table);
        let entry = entry(&made, seen);
        (made, entry)
    }

    /// Counts one more reference to a node that has references.
    pub fn refer(&self, inode: &Inode) -> Result<()> {
        self.table()
            .by_number
            .get_mut(&inode.number)
            .map(|(_, references)| *references += 1)
            .ok_or(Errno::STALE)
    }

    pub fn forget(&self, node: Node, references: u64) {
        let mut table = self.table();
        let Some((inode, left)) =
            table.by_number.get_mut(&node).filter(|_| node != self.root.number)
        else {
            return;
        };
        *left = left.saturating_sub(references);
        if *left > 0 {
            return;
        }
        let key = (inode.identity.device, inode.identity.inode);
        let gone = table.by_number.remove(&node);
        if table.by_inode.get(&key) == Some(&node) {
            table.by_inode.remove(&key);
        }
        drop(table);
        // The descriptor is closed here, after the lock is released.
        drop(gone);
    }

    /// Records that `name` in `directory` refers to `inode`. The name was looked up after
    /// `departures` was read.
    pub fn place(&self, inode: &Arc<Inode>, directory: &Arc<Inode>, name: &[u8], departures: u64) {
        if Arc::ptr_eq(inode, &self.root) {
            return;
        }
        let mut state = inode.state();
        if self.departures() == departures
            && !state.place.as_ref().is_some_and(|place| place.is(directory, name))
        {
            let old = state.place.replace(Place::new(directory, name));
            let queue = !std::mem::replace(&mut state.queued, true);
            drop(state);
            drop(old);
            if queue {
                self.queue(inode);
            }
        }
    }

    /// A descriptor of the inode. Opened again through the inode's place if it was closed.
    pub fn descriptor(&self, inode: &Arc<Inode>) -> Result<Arc<Descriptor>> {
        let mut missing = Vec::new();
        let mut at = Arc::clone(inode);
        let mut descriptor = loop {
            let state = at.state();
            if let Some(descriptor) = &state.descriptor {
                break Arc::clone(descriptor);
            }
            let Place { directory, name } = state.place.clone().ok_or(Errno::STALE)?;
            drop(state);
            missing.push((std::mem::replace(&mut at, directory), name));
            if missing.len() > DEEPEST {
                return Err(Errno::STALE);
            }
        };
        while let Some((inode, name)) = missing.pop() {
            descriptor = self.again(&inode, &descriptor, &name)?;
        }
        Ok(descriptor)
    }

    /// Opens an inode again through its last known place.
    fn again(
        &self,
        inode: &Arc<Inode>,
        directory: &Descriptor,
        name: &[u8],
    ) -> Result<Arc<Descriptor>> {
        let found = self
            .spared(|| open_beneath(directory, name, OFlags::PATH, Mode::empty()))
            .map_err(|e| match e {
                Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO => e,
                _ => Errno::STALE,
            })?;
        if Seen::at(&found)?.identity != inode.identity {
            return Err(Errno::STALE);
        }
        let mut state = inode.state();
        let descriptor =
            state.descriptor.get_or_insert_with(|| Descriptor::new(found, &self.open)).clone();
        let queue = state.place.is_some() && !std::mem::replace(&mut state.queued, true);
        drop(state);
        if queue {
            self.queue(inode);
        }
        Ok(descriptor)
    }

    /// Looks up `name` before it is removed.
    pub fn departing(&self, directory: &Descriptor, name: &[u8]) -> Result<Option<Departing>> {
        let Ok(Seen { identity, .. }) = Seen::beneath(directory, name) else { return Ok(None) };
        let known = self.table().find(&identity);
        let descriptor = match known.map_or(Err(Errno::STALE), |inode| self.descriptor(&inode)) {
            // The inode is not in the table yet, but may be looked up before the removal. Or its
            // recorded name was changed on the host, and only this name is valid.
            Err(Errno::STALE) => {
                let found =
                    self.spared(|| open_beneath(directory, name, OFlags::PATH, Mode::empty()));
                let Ok(found) = found else { return Ok(None) };
                Descriptor::new(found, &self.open)
            }
            other => other?,
        };
        Ok(Some(Departing { identity, descriptor }))
    }

    /// Records that the name was removed. A concurrent lookup either sees the changed `departures`,
    /// or has recorded the place that is cleared here.
    pub fn departed(&self, departing: Option<Departing>, directory: &Inode, name: &[u8]) {
        self.departures.fetch_add(1, Ordering::AcqRel);
        let Some(Departing { identity, descriptor }) = departing else { return };
        let Some(inode) = self.table().find(&identity) else { return };
        let mut state = inode.state();
        state.descriptor.get_or_insert(descriptor);
        if state.place.as_ref().is_some_and(|place| place.is(directory, name)) {
            let gone = state.place.take();
            drop(state);
            drop(gone);
        }
    }

    /// Records that the inode was renamed to `name` in `directory`.
    pub fn moved(&self, departing: Option<Departing>, directory: &Arc<Inode>, name: &[u8]) {
        let departures = self.departures.fetch_add(1, Ordering::AcqRel) + 1;
        let Some(Departing { identity, descriptor }) = departing else { return };
        let Some(inode) = self.table().find(&identity) else { return };
        let mut state = inode.state();
        state.descriptor.get_or_insert(descriptor);
        // The old place is invalid. Unless the new place is recorded, the inode keeps its
        // descriptor.
        let gone = state.place.take();
        drop(state);
        drop(gone);
        self.place(&inode, directory, name, departures);
    }

    fn queue(&self, inode: &Arc<Inode>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(Arc::downgrade(inode));
        let open = self.open.load(Ordering::Relaxed);
        // Most entries in a long queue belong to forgotten nodes.
        if queue.len() > 2 * open + 64 {
            queue.retain(|inode| inode.strong_count() > 0);
        }
        drop(queue);
        if open > self.most {
            self.close_some(self.most);
        }
    }

    /// Closes descriptors by the second-chance algorithm until at most `most` are open, or none can
    /// be closed.
    fn close_some(&self, most: usize) {
        let mut closed = Vec::new();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..2 * queue.len() {
            if self.open.load(Ordering::Relaxed) <= most + closed.len() {
                break;
            }
            let Some(first) = queue.pop_front() else { break };
            let Some(inode) = first.upgrade() else { continue };
            if inode.used.swap(false, Ordering::Relaxed) {
                queue.push_back(first);
                continue;
            }
            let mut state = inode.state();
            state.queued = false;
            if state.place.is_some() {
                closed.extend(state.descriptor.take());
            }
        }
        drop(queue);
        drop(closed);
    }

    /// Runs `call`, which opens a descriptor. If none is free, closes descriptors of nodes and
    /// tries again.
    pub fn spared<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let open = self.open.load(Ordering::Relaxed);
            match call() {
                Err(Errno::INTR) => {}
                Err(e @ (Errno::MFILE | Errno::NFILE)) => {
                    self.close_some(open - open.div_ceil(4));
                    if self.open.load(Ordering::Relaxed) >= open {
                        return Err(e);
                    }
                }
                other => return other,
            }
        }
    }
}

impl Table {
    fn find(&self, identity: &Identity) -> Option<Arc<Inode>> {
        let number = self.by_inode.get(&(identity.device, identity.inode))?;
        let (inode, _) = self.by_number.get(number)?;
        (inode.identity == *identity).then(|| Arc::clone(inode))
    }

    /// As [`find`](Table::find), and counts a reference.
    fn refer(&mut self, identity: &Identity) -> Option<Arc<Inode>> {
        let inode = self.find(identity)?;
        let (_, references) = self.by_number.get_mut(&inode.number)?;
        *references += 1;
        inode.used.store(true, Ordering::Relaxed);
        Some(inode)
    }
}

/// The entry for a node that was looked up or created.
pub fn entry(inode: &Inode, seen: &Seen) -> Entry {
    Entry { generation: seen.identity.generation(), attributes: seen.attributes(inode.number) }
}
