//! Creation and removal of names: open(2) with `O_CREAT`, mkdir(2), symlink(2), mknod(2), link(2),
//! unlink(2), rmdir(2).

use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::sync::{Arc, PoisonError, RwLockWriteGuard};
use kumihimo_store::acl::{self, Acl};
use kumihimo_store::{Caller, Entry, Errno, Kind, New, Node};

use crate::Ext2;
use crate::change::transaction::{Outcome, Transaction};
use crate::layout::dirent;
use crate::layout::inode::{APPEND, FOR_DIRECTORIES, Fields, IMMUTABLE, INHERITED, blank};
use crate::memory::cache::Class;
use crate::memory::index::Index;
use crate::memory::inodes::Inode;
use crate::memory::order::Thing;
use crate::operations::directory::{Near, Place};

/// Maximum number of names of an inode: `EXT2_LINK_MAX`.
pub const MOST_LINKS: u16 = 32_000;
const SETGID: u32 = 0o2000;

/// Lock of a directory, which contains its index.
pub type Locked<'a> = RwLockWriteGuard<'a, Option<Box<Index>>>;

impl Ext2 {
    /// Locks a directory to change its names.
    pub(crate) fn lock_names<'a>(&self, directory: &'a Inode) -> Result<Locked<'a>, Errno> {
        let mut lock = directory.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.indexed(directory, &mut lock)?;
        Ok(lock)
    }

    /// Checks that names may be added to a directory, or removed from it.
    pub(crate) fn changeable_names(&self, directory: &Inode, remove: bool) -> Result<(), Errno> {
        self.writable()?;
        let state = directory.state();
        let kept = IMMUTABLE | if remove { APPEND } else { 0 };
        if state.dead || state.fields.links == 0 {
            Err(Errno::NOENT)
        } else if state.fields.flags & kept != 0 {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }

    pub(crate) fn make_name(
        &self,
        caller: &Caller,
        directory: Node,
        name: &[u8],
        what: New<'_>,
    ) -> Result<Entry, Errno> {
        self.throttle()?;
        let directory = self.held_directory(directory)?;
        let mut lock = self.lock_names(&directory)?;
        let default = self.default_list(&directory)?;
        let made = self.modify(|transaction| {
            let Some(index) = lock.as_deref_mut() else { return Err(Errno::IO.into()) };
            self.changeable_names(&directory, false)?;
            if self.find_name(&directory, Some(index), name)?.is_some() {
                return Err(Errno::EXIST.into());
            }
            self.make(transaction, (caller, default.as_ref()), (&directory, index), name, what)
        })?;
        self.entry(&made)
    }

    fn make(
        &self,
        transaction: &Transaction<'_>,
        (caller, default): (&Caller, Option<&Acl>),
        (directory, index): (&Arc<Inode>, &mut Index),
        name: &[u8],
        what: New<'_>,
    ) -> Outcome<Arc<Inode>> {
        let (kind, mode) = match what {
            New::File { mode } => (Kind::File, mode),
            New::Directory { mode } => (Kind::Directory, mode),
            New::Symlink { .. } => (Kind::Symlink, 0o777),
            New::Special { kind, mode, .. } => (kind, mode),
        };
        let asked = mode;
        // Symbolic links have neither a mask nor a list.
        let default = default.filter(|_| kind != Kind::Symlink);
        let umask = if kind == Kind::Symlink { 0 } else { caller.umask };
        let mode = acl::mode_of_new(default, asked, umask);
        let (mut fields, links) = self.fields_of_new(directory, caller, kind, mode);
        if let New::Special { device, kind: Kind::CharDevice | Kind::BlockDevice, .. } = what {
            fields.set_device(device);
        }
        if let New::Symlink { target } = what {
            if target.len() >= self.geometry.block_size {
                return Err(Errno::NAMETOOLONG.into());
            }
            fields.size = target.len() as u64;
            if target.len() < 60 {
                fields.set_short_link(target);
            }
        }
        if kind == Kind::Directory && links >= MOST_LINKS {
            return Err(Errno::MLINK.into());
        }
        let gap = self.find_gap(transaction, directory, index, name, Near::Any)?;
        let container = self.container(directory, gap.block);
        self.before_coming(directory, name, container)?;
        let number = self.allocate_inode(transaction, directory.number, kind == Kind::Directory)?;
        if let Err(stop) = self.demand(container, Thing::Inode(number)) {
            self.free_inode(number, kind == Kind::Directory, true);
            return Err(stop);
        }
        let inode = self.add_inode(number, fields, blank(self.geometry.inode_size));
        let contents = match what {
            New::Directory { .. } => self.begin_directory(transaction, &inode, directory.number),
            New::Symlink { target } if target.len() >= 60 => {
                self.put_target(transaction, &inode, target)
            }
            _ => Ok(()),
        };
        let outcome = contents.and_then(|()| {
            if let Some(default) = default {
                self.inherit_list(transaction, &inode, default, asked)?;
            }
            Ok(self.put_name(transaction, directory, index, gap, (name, number, kind))?)
        });
        if let Err(stop) = outcome {
            self.unmake(transaction, &inode);
            return Err(stop);
        }
        if kind == Kind::Directory {
            self.change_inode(directory, |state| state.fields.links += 1);
        }
        Ok(inode)
    }

    fn fields_of_new(
        &self,
        directory: &Inode,
        caller: &Caller,
        kind: Kind,
        mode: u32,
    ) -> (Fields, u16) {
        let now = (self.now)();
        let above = directory.state();
        let given = u32::from(above.fields.mode) & SETGID;
        let inherit = if kind == Kind::Directory { given } else { 0 };
        let mut fields = Fields::read(&[0; 128]);
        fields.mode = u16::try_from(kind.mode() | (mode & 0o7777) | inherit).unwrap_or(0);
        fields.uid = caller.uid;
        fields.gid = if given != 0 { above.fields.gid } else { caller.gid };
        (fields.atime, fields.mtime, fields.ctime) = (now, now, now);
        fields.links = 1;
        fields.flags = above.fields.flags & INHERITED;
        match kind {
            Kind::Directory => {}
            Kind::File => fields.flags &= !FOR_DIRECTORIES,
            // `EXT2_OTHER_FLMASK`: NODUMP and NOATIME.
            _ => fields.flags &= 0x40 | 0x80,
        }
        fields.generation = self.generation.fetch_add(1, Relaxed);
        (fields, above.fields.links)
    }

    fn begin_directory(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        above: u32,
    ) -> Outcome<()> {
        let size = self.geometry.block_size;
        let (block, _, new) = self.fill_extent(transaction, inode, 0, 1)?;
        let kind = if self.incompat & crate::layout::superblock::FILETYPE != 0 { 2 } else { 0 };
        let mut bytes = vec![0; size];
        dirent::put(&mut bytes, 0, 12, inode.number, kind, b".");
        dirent::put(&mut bytes, 12, dirent::SECTOR - 12, above, kind, b"..");
        dirent::free_sectors(&mut bytes, dirent::SECTOR);
        self.cache.put(block, Class::Directory, bytes.into(), new);
        self.change_inode(inode, |state| {
            (state.fields.size, state.fields.links) = (size as u64, 2)
        });
        Ok(())
    }

    fn put_target(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        target: &[u8],
    ) -> Outcome<()> {
        let (block, _, new) = self.fill_extent(transaction, inode, 0, 1)?;
        let mut bytes = vec![0; self.geometry.block_size];
        bytes[..target.len()].copy_from_slice(target);
        self.cache.put(block, Class::Data, bytes.into(), new);
        Ok(())
    }

    /// Undoes the creation of an inode to which no name leads yet.
    fn unmake(&self, transaction: &Transaction<'_>, inode: &Arc<Inode>) {
        // Cannot fail: all its blocks are in memory.
        let _ = self.free_range(transaction, inode, 0, u64::MAX);
        let attributes = inode.state().fields.acl_block;
        if attributes != 0 {
            let _ = self.drop_attributes(transaction, inode, attributes);
        }
        let directory = self.change_inode(inode, |state| {
            (state.fields.links, state.dead) = (0, true);
            state.kind() == Kind::Directory
        });
        self.nodes.remove(inode);
        self.free_inode(inode.number, directory, true);
    }

    /// Adds a name as link(2).
    pub(crate) fn link_name(
        &self,
        node: Node,
        directory: Node,
        name: &[u8],
    ) -> Result<Entry, Errno> {
        self.throttle()?;
        let inode = self.held(node)?;
        let directory = self.held_directory(directory)?;
        let kind = inode.state().kind();
        if kind == Kind::Directory {
            return Err(Errno::PERM);
        }
        let mut lock = self.lock_names(&directory)?;
        self.modify(|transaction| {
            let Some(index) = lock.as_deref_mut() else { return Err(Errno::IO.into()) };
            self.changeable_names(&directory, false)?;
            if self.find_name(&directory, Some(index), name)?.is_some() {
                return Err(Errno::EXIST.into());
            }
            let (links, flags) = {
                let state = inode.state();
                (state.fields.links, state.fields.flags)
            };
            if links == 0 {
                return Err(Errno::NOENT.into());
            }
            if flags & (IMMUTABLE | APPEND) != 0 {
                return Err(Errno::PERM.into());
            }
            if links >= MOST_LINKS {
                return Err(Errno::MLINK.into());
            }
            let gap = self.find_gap(transaction, &directory, index, name, Near::Any)?;
            let container = self.container(&directory, gap.block);
            self.before_coming(&directory, name, container)?;
            self.before_name(&inode, container)?;
            self.put_name(transaction, &directory, index, gap, (name, inode.number, kind))?;
            let now = (self.now)();
            self.change_inode(&inode, |state| {
                state.fields.links += 1;
                state.fields.ctime = now;
                state.new_names.push(container);
            });
            Ok(())
        })?;
        drop(lock);
        self.entry(&inode)
    }

    /// Requires the order that a new name of an inode in `container` needs.
    pub(crate) fn before_name(&self, inode: &Inode, container: Thing) -> Outcome<()> {
        if inode.state().born { self.demand(container, Thing::Inode(inode.number)) } else { Ok(()) }
    }

    /// Requires the order that removing a name from `container` needs: before it, the inode is
    /// deleted or has another name.
    pub(crate) fn before_removal(&self, inode: &Inode, container: Thing) -> Outcome<()> {
        let (born, last, names, taken_over) = {
            let state = inode.state();
            let least = if state.kind() == Kind::Directory { 2 } else { 1 };
            (
                state.born,
                state.fields.links <= least,
                state.new_names.clone(),
                state.taken_over.clone(),
            )
        };
        if born {
            return Ok(());
        }
        if last {
            // A former name that leads to another inode must do so on the disk before this inode is
            // deleted. Otherwise e2fsck would remove the name too.
            taken_over
                .into_iter()
                .try_for_each(|name| self.demand(name, Thing::Inode(inode.number)))?;
            return self.demand(Thing::Inode(inode.number), container);
        }
        // A partial write of a block is possible. Hence a block that existed before cannot lose a
        // name in the commit in which it receives another name of the same inode: the requirement
        // fails.
        let matters = |name: &Thing| *name != container || matches!(name, Thing::Block(_));
        names.into_iter().filter(matters).try_for_each(|name| self.demand(name, container))
    }

    /// Returns the inode of an entry, if it may lose a name.
    pub(crate) fn removable(&self, place: Place) -> Result<Arc<Inode>, Errno> {
        let inode = self.inode(place.number)?;
        let flags = inode.state().fields.flags;
        if flags & (IMMUTABLE | APPEND) != 0 { Err(Errno::PERM) } else { Ok(inode) }
    }

    /// Removes a name as unlink(2).
    pub(crate) fn unlink_name(&self, directory: Node, name: &[u8]) -> Result<(), Errno> {
        self.throttle()?;
        let directory = self.held_directory(directory)?;
        let mut lock = self.lock_names(&directory)?;
        // Loaded here, because other changes may wait while this one runs.
        if let Some(place) = self.find_name(&directory, lock.as_deref(), name)? {
            self.inode(place.number)?;
        }
        let inode = self.modify(|transaction| {
            let Some(index) = lock.as_deref_mut() else { return Err(Errno::IO.into()) };
            self.changeable_names(&directory, true)?;
            let place = self.find_name(&directory, Some(index), name)?.ok_or(Errno::NOENT)?;
            let inode = self.removable(place)?;
            if inode.state().kind() == Kind::Directory {
                return Err(Errno::ISDIR.into());
            }
            let container = self.container(&directory, place.block);
            self.before_removal(&inode, container)?;
            self.take_name(transaction, &directory, index, place, name)?;
            self.leaves(&directory, name, container);
            self.lose_name(&inode, 1);
            Ok(inode)
        })?;
        drop(lock);
        self.end_if_unused(&inode);
        Ok(())
    }

    /// Records the loss of `names` names. A directory loses two: its entry in the parent, and its
    /// own `.`.
    pub(crate) fn lose_name(&self, inode: &Arc<Inode>, names: u16) {
        let now = (self.now)();
        self.change_inode(inode, |state| {
            state.fields.links = state.fields.links.saturating_sub(names);
            state.fields.ctime = now;
            if state.fields.links == 0 {
                // From now on the inode counts as deleted on the disk, so e2fsck frees it after a
                // power cut. The list of orphans (s_last_orphan) is not used: it would be a second
                // structure to keep consistent.
                state.fields.dtime = u32::try_from(now.seconds).unwrap_or(u32::MAX).max(1);
            }
        });
    }

    /// Removes a directory as rmdir(2).
    pub(crate) fn remove_empty(&self, directory: Node, name: &[u8]) -> Result<(), Errno> {
        self.throttle()?;
        let above = self.held_directory(directory)?;
        let Some(below) = self.look_up(&above, name)? else { return Err(Errno::NOENT) };
        if below.state().kind() != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        if Arc::ptr_eq(&above, &below) {
            return Err(Errno::INVAL);
        }
        // Directories are locked in ascending order of their numbers.
        let (mut lock, _lower) = if above.number < below.number {
            let lock = self.lock_names(&above)?;
            (lock, self.lock_names(&below)?)
        } else {
            let lower = self.lock_names(&below)?;
            (self.lock_names(&above)?, lower)
        };
        self.modify(|transaction| {
            let Some(index) = lock.as_deref_mut() else { return Err(Errno::IO.into()) };
            self.changeable_names(&above, true)?;
            let place = self.find_name(&above, Some(index), name)?.ok_or(Errno::NOENT)?;
            self.removable(place)?;
            if place.number != below.number {
                // The name now leads to another inode: this request counts as earlier than that
                // change.
                return Err(Errno::NOENT.into());
            }
            if !self.is_empty(&below)? {
                return Err(Errno::NOTEMPTY.into());
            }
            self.before_end(&below)?;
            let container = self.container(&above, place.block);
            if !below.state().born {
                self.demand(Thing::Inode(below.number), container)?;
            }
            self.take_name(transaction, &above, index, place, name)?;
            self.leaves(&above, name, container);
            self.lose_directory(&above, &below);
            Ok(())
        })?;
        drop((lock, _lower));
        self.end_if_unused(&below);
        Ok(())
    }

    /// Requires the order that the end of a directory needs: before it, its former entries are
    /// removed or moved.
    pub(crate) fn before_end(&self, directory: &Inode) -> Outcome<()> {
        for block in self.blocks_of(directory) {
            if self.is_ordered(Thing::Block(block)) {
                self.demand(Thing::Block(block), Thing::Inode(directory.number))?;
            }
        }
        Ok(())
    }

    /// Records that a directory in `above` has lost its name.
    pub(crate) fn lose_directory(&self, above: &Arc<Inode>, below: &Arc<Inode>) {
        self.lose_name(below, u16::MAX);
        self.change_inode(above, |state| {
            if state.fields.links > 2 {
                state.fields.links -= 1;
            }
        });
    }
}
