//! `Store` operations of the model.

use std::collections::btree_map::Entry as Place;

use kumihimo_store::{
    Attributes, Caller, Changes, Entry, Errno, Handle, Kind, Listed, New, Node, Result, Seek,
    Stamp, Statistics, Store, Time, XattrMode,
};

use crate::clock;

use super::{Contents, Directory, Inode, Model, ROOT, Tree, What};

/// open(2)'s `O_ACCMODE`.
const ACCESS: u32 = 3;
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

fn entry(tree: &mut Tree, node: Node) -> Result<Entry> {
    let inode = tree.inode(node)?;
    inode.references += 1;
    // The model never reuses inode numbers.
    Ok(Entry { generation: 0, attributes: inode.attributes(node) })
}

fn stamp(stamp: Stamp, now: Time) -> Time {
    match stamp {
        Stamp::Now => now,
        Stamp::At(time) => time,
    }
}

impl Model {
    /// End of a range, which must be within the size limit of files.
    fn end(&self, offset: u64, length: u64) -> Result<u64> {
        offset.checked_add(length).filter(|end| *end <= self.limits.file).ok_or(Errno::FBIG)
    }
}

impl Store for Model {
    fn root(&self) -> Node {
        ROOT
    }

    fn lookup(&self, directory: Node, name: &[u8]) -> Result<Entry> {
        let mut tree = self.tree();
        let node = match name {
            b"." => tree.directory(directory).map(|_| directory)?,
            b".." => tree.directory(directory)?.parent,
            _ => tree.find(directory, name)?.ok_or(Errno::NOENT)?,
        };
        entry(&mut tree, node)
    }

    fn forget(&self, node: Node, references: u64) {
        let mut tree = self.tree();
        if let Ok(inode) = tree.inode(node) {
            inode.references -= references;
        }
        tree.bury(node);
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        Ok(self.tree().inode(node)?.attributes(node))
    }

    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes> {
        let (now, mut tree) = (clock::now(), self.tree());
        let inode = tree.inode(node)?;
        if let Some(size) = changes.size {
            let contents = inode.contents()?;
            contents.resize(self.end(0, size)?);
            inode.mtime = now;
        }
        if changes.kill_privileges {
            // Set-group-ID without group execute permission historically marks mandatory locking
            // and is kept: see chown(2).
            inode.permissions &= if inode.permissions & 0o10 == 0 { !0o4000 } else { !0o6000 };
        }
        inode.permissions = changes.permissions.map_or(inode.permissions, |mode| mode & 0o7777);
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        inode.atime = changes.atime.map_or(inode.atime, |to| stamp(to, now));
        inode.mtime = changes.mtime.map_or(inode.mtime, |to| stamp(to, now));
        inode.ctime = changes.ctime.unwrap_or(now);
        Ok(inode.attributes(node))
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>> {
        match &self.tree().inode(node)?.what {
            What::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    fn make(&self, caller: &Caller, directory: Node, name: &[u8], what: New<'_>) -> Result<Entry> {
        let (now, mut tree) = (clock::now(), self.tree());
        tree.room(directory, name)?;
        let parent = tree.inode(directory)?;
        let group = (parent.permissions & 0o2000 != 0).then_some(parent.gid);
        let mut inode = match what {
            New::File { mode } | New::Special { kind: Kind::File, mode, .. } => {
                Inode::new(What::File(Contents::default()), mode, now)
            }
            New::Directory { mode } => {
                let names = Directory {
                    parent: directory,
                    names: std::collections::BTreeMap::new(),
                    next: 3,
                };
                let mode = if group.is_some() { mode | 0o2000 } else { mode };
                Inode { links: 2, ..Inode::new(What::Directory(names), mode, now) }
            }
            New::Symlink { target } if target.len() > self.limits.target => {
                return Err(Errno::NAMETOOLONG);
            }
            New::Symlink { target } => Inode::new(What::Symlink(target.to_vec()), 0o777, now),
            New::Special { kind, mode, device } => {
                let device =
                    if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { device } else { 0 };
                Inode { device, ..Inode::new(What::Special(kind), mode, now) }
            }
        };
        (inode.uid, inode.gid) = (caller.uid, group.unwrap_or(caller.gid));
        parent.changed(now);
        parent.links += u32::from(inode.kind() == Kind::Directory);
        let node = Node(tree.next);
        tree.next += 1;
        tree.inodes.insert(node, inode);
        tree.directory(directory)?.insert(name, node);
        entry(&mut tree, node)
    }

    fn unlink(&self, directory: Node, name: &[u8]) -> Result<()> {
        let (now, mut tree) = (clock::now(), self.tree());
        let node = tree.find(directory, name)?.ok_or(Errno::NOENT)?;
        if tree.is_directory(node) {
            return Err(Errno::ISDIR);
        }
        tree.directory(directory)?.names.remove(name);
        tree.inode(directory)?.changed(now);
        tree.drop_link(directory, node, now)
    }

    fn remove_directory(&self, directory: Node, name: &[u8]) -> Result<()> {
        let (now, mut tree) = (clock::now(), self.tree());
        let node = tree.find(directory, name)?.ok_or(Errno::NOENT)?;
        if !tree.empty(node)? {
            return Err(Errno::NOTEMPTY);
        }
        tree.directory(directory)?.names.remove(name);
        tree.inode(directory)?.changed(now);
        tree.drop_link(directory, node, now)
    }

    fn rename(&self, from: Node, name: &[u8], to: Node, new_name: &[u8], keep: bool) -> Result<()> {
        let (now, mut tree) = (clock::now(), self.tree());
        let node = tree.find(from, name)?;
        let old = tree.find(to, new_name)?;
        let node = node.ok_or(Errno::NOENT)?;
        tree.alive(to)?;
        let is_directory = tree.is_directory(node);
        if old.is_some() && keep {
            return Err(Errno::EXIST);
        }
        if old == Some(node) {
            return Ok(());
        }
        if is_directory && tree.above(node, to)? {
            return Err(Errno::INVAL);
        }
        if let Some(old) = old {
            match (is_directory, tree.is_directory(old)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !tree.empty(old)? => return Err(Errno::NOTEMPTY),
                _ => {}
            }
            tree.directory(to)?.names.remove(new_name);
            tree.drop_link(to, old, now)?;
        }
        tree.directory(from)?.names.remove(name);
        tree.directory(to)?.insert(new_name, node);
        if is_directory {
            tree.directory(node)?.parent = to;
            tree.inode(from)?.links -= 1;
            tree.inode(to)?.links += 1;
        }
        tree.inode(from)?.changed(now);
        tree.inode(to)?.changed(now);
        tree.inode(node)?.ctime = now;
        Ok(())
    }

    fn link(&self, node: Node, directory: Node, name: &[u8]) -> Result<Entry> {
        let (now, mut tree) = (clock::now(), self.tree());
        tree.room(directory, name)?;
        if tree.is_directory(node) {
            return Err(Errno::PERM);
        }
        tree.alive(node)?;
        let inode = tree.inode(node)?;
        inode.links += 1;
        inode.ctime = now;
        tree.directory(directory)?.insert(name, node);
        tree.inode(directory)?.changed(now);
        entry(&mut tree, node)
    }

    fn open(&self, node: Node, flags: u32) -> Result<Handle> {
        match self.tree().inode(node)?.what {
            What::Directory(_) if flags & ACCESS != 0 => Err(Errno::ISDIR),
            _ => Ok(Handle(0)),
        }
    }

    fn release(&self, _: Node, _: Handle) {}

    fn read(&self, node: Node, _: Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(self.tree().inode(node)?.contents()?.read(offset, into))
    }

    fn write(&self, node: Node, _: Handle, offset: u64, from: &[u8]) -> Result<usize> {
        let (now, mut tree) = (clock::now(), self.tree());
        let inode = tree.inode(node)?;
        let contents = inode.contents()?;
        if !from.is_empty() {
            self.end(offset, from.len() as u64)?;
            contents.write(offset, from);
            inode.changed(now);
        }
        Ok(from.len())
    }

    fn sync(&self, node: Node, _: Handle, _: bool) -> Result<()> {
        self.tree().inode(node).map(|_| ())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn read_directory(
        &self,
        node: Node,
        _: Handle,
        offset: u64,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let mut tree = self.tree();
        // A removed directory has no entries, not even `.` and `..`.
        let dots = tree.inode(node)?.links > 0;
        let directory = tree.directory(node)?;
        let mut names: Vec<(u64, Node, &[u8])> = directory
            .names
            .iter()
            .map(|(name, (number, node))| (*number, *node, name.as_slice()))
            .collect();
        if dots {
            names.extend([(1, node, b".".as_slice()), (2, directory.parent, b"..".as_slice())]);
        }
        names.retain(|(number, ..)| *number > offset);
        names.sort_unstable();
        for (next, node, name) in names {
            if !take(Listed { node, next, kind: None, name }) {
                break;
            }
        }
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics { block_size: 4096, longest_name: 255, ..Statistics::default() })
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        self.tree().inode(node)?.xattrs.get(name).cloned().ok_or(Errno::NODATA)
    }

    fn xattrs(&self, node: Node) -> Result<Vec<u8>> {
        Ok(self
            .tree()
            .inode(node)?
            .xattrs
            .keys()
            .flat_map(|name| name.iter().copied().chain([0]))
            .collect())
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (now, mut tree) = (clock::now(), self.tree());
        let inode = tree.inode(node)?;
        match (inode.xattrs.entry(name.to_vec()), mode) {
            (Place::Occupied(_), XattrMode::Create) => return Err(Errno::EXIST),
            (Place::Vacant(_), XattrMode::Replace) => return Err(Errno::NODATA),
            (Place::Occupied(mut place), _) => drop(place.insert(value.to_vec())),
            (Place::Vacant(place), _) => drop(place.insert(value.to_vec())),
        }
        inode.ctime = now;
        Ok(())
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        let (now, mut tree) = (clock::now(), self.tree());
        let inode = tree.inode(node)?;
        inode.xattrs.remove(name).ok_or(Errno::NODATA)?;
        inode.ctime = now;
        Ok(())
    }

    fn allocate(&self, node: Node, _: Handle, mode: u32, offset: u64, length: u64) -> Result<()> {
        let (now, mut tree) = (clock::now(), self.tree());
        let inode = tree.inode(node)?;
        let keep = mode & KEEP_SIZE != 0;
        match mode & !KEEP_SIZE {
            0 | ZERO_RANGE => {}
            PUNCH_HOLE if keep => {}
            _ => return Err(Errno::OPNOTSUPP),
        }
        let contents = match &mut inode.what {
            What::File(contents) => contents,
            What::Directory(_) => return Err(Errno::ISDIR),
            What::Symlink(_) | What::Special(_) => return Err(Errno::NODEV),
        };
        if length == 0 {
            return Err(Errno::INVAL);
        }
        let end = self.end(offset, length)?;
        if mode & !KEEP_SIZE != 0 {
            contents.clear(offset, length);
        }
        if !keep && end > contents.size() {
            contents.resize(end);
        }
        inode.changed(now);
        Ok(())
    }

    fn seek(&self, node: Node, _: Handle, offset: u64, what: Seek) -> Result<u64> {
        let mut tree = self.tree();
        let contents = tree.inode(node)?.contents()?;
        if offset >= contents.size() {
            return Err(Errno::NXIO);
        }
        match what {
            Seek::Data => contents.data(offset).ok_or(Errno::NXIO),
            // The implicit hole at the end of each file: everything before it may be reported as
            // data.
            Seek::Hole => Ok(contents.size()),
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
