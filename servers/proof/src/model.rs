//! Reference implementation of a store: a tree in maps behind one lock.

mod contents;
mod store;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contents::Contents;
use kumihimo_store::{Attributes, Errno, Kind, Node, Result, Time};

use crate::clock;

/// Limits that an implementation may choose.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest file, in bytes.
    pub file: u64,
    /// The longest target of a symbolic link.
    pub target: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { file: 1 << 43, target: 4095 }
    }
}

/// A file tree in memory.
#[derive(Debug)]
pub struct Model {
    limits: Limits,
    tree: Mutex<Tree>,
}

/// All inodes, and the next free inode number.
#[derive(Debug)]
struct Tree {
    inodes: BTreeMap<Node, Inode>,
    next: u64,
}

#[derive(Debug)]
struct Inode {
    permissions: u32,
    uid: u32,
    gid: u32,
    links: u32,
    atime: Time,
    mtime: Time,
    ctime: Time,
    device: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    references: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    File(Contents),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special(Kind),
}

/// Names in a directory. Each has a sequence number from its creation, which is its position in
/// listings.
#[derive(Debug)]
struct Directory {
    parent: Node,
    names: BTreeMap<Vec<u8>, (u64, Node)>,
    next: u64,
}

const ROOT: Node = Node(1);

impl Model {
    /// Creates an empty tree. The root belongs to user 0 and has `permissions`.
    #[must_use]
    pub fn new(limits: Limits, permissions: u32) -> Model {
        let mut tree = Tree { inodes: BTreeMap::new(), next: 2 };
        let root = Directory { parent: ROOT, names: BTreeMap::new(), next: 3 };
        tree.inodes.insert(
            ROOT,
            Inode {
                links: 2,
                references: 1,
                ..Inode::new(What::Directory(root), permissions, clock::now())
            },
        );
        Model { limits, tree: Mutex::new(tree) }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Type of a node; `None` if the node does not exist.
    #[must_use]
    pub fn kind(&self, node: Node) -> Option<Kind> {
        self.tree().inodes.get(&node).map(Inode::kind)
    }

    /// The names in a directory, without `.` and `..`.
    #[must_use]
    pub fn names(&self, node: Node) -> Vec<(Vec<u8>, Node)> {
        match self.tree().inodes.get(&node).map(|inode| &inode.what) {
            Some(What::Directory(directory)) => {
                directory.names.iter().map(|(name, (_, node))| (name.clone(), *node)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Position of the first non-zero byte of a file at or after `offset`.
    #[must_use]
    pub fn data(&self, node: Node, offset: u64) -> Option<u64> {
        match self.tree().inodes.get(&node).map(|inode| &inode.what) {
            Some(What::File(contents)) => contents.data(offset),
            _ => None,
        }
    }

    /// Total size of a node's xattrs, names and values, and their number.
    #[must_use]
    pub fn xattr_bytes(&self, node: Node) -> (usize, usize) {
        let tree = self.tree();
        let xattrs = tree.inodes.get(&node).map(|inode| &inode.xattrs);
        (
            xattrs.map_or(0, |all| all.iter().map(|(name, value)| name.len() + value.len()).sum()),
            xattrs.map_or(0, BTreeMap::len),
        )
    }

    /// Copies owner and times of a node from another store.
    pub fn adopt(&self, node: Node, from: &Attributes) {
        if let Some(inode) = self.tree().inodes.get_mut(&node) {
            (inode.uid, inode.gid, inode.permissions) = (from.uid, from.gid, from.permissions);
            (inode.atime, inode.mtime, inode.ctime) = (from.atime, from.mtime, from.ctime);
        }
    }
}

impl Inode {
    fn new(what: What, permissions: u32, now: Time) -> Inode {
        Inode {
            permissions: permissions & 0o7777,
            uid: 0,
            gid: 0,
            links: 1,
            atime: now,
            mtime: now,
            ctime: now,
            device: 0,
            xattrs: BTreeMap::new(),
            references: 0,
            what,
        }
    }

    fn kind(&self) -> Kind {
        match &self.what {
            What::File(_) => Kind::File,
            What::Directory(_) => Kind::Directory,
            What::Symlink(_) => Kind::Symlink,
            What::Special(kind) => *kind,
        }
    }

    fn contents(&mut self) -> Result<&mut Contents> {
        match &mut self.what {
            What::File(contents) => Ok(contents),
            What::Directory(_) => Err(Errno::ISDIR),
            What::Symlink(_) | What::Special(_) => Err(Errno::INVAL),
        }
    }

    fn attributes(&self, node: Node) -> Attributes {
        let size = match &self.what {
            What::File(contents) => contents.size(),
            What::Symlink(target) => target.len() as u64,
            What::Directory(_) | What::Special(_) => 0,
        };
        Attributes {
            node,
            size,
            blocks: 0,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            kind: self.kind(),
            permissions: self.permissions,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            device: self.device,
            block_size: 4096,
        }
    }

    fn changed(&mut self, now: Time) {
        (self.mtime, self.ctime) = (now, now);
    }
}

impl Directory {
    fn insert(&mut self, name: &[u8], node: Node) {
        self.names.insert(name.to_vec(), (self.next, node));
        self.next += 1;
    }
}

impl Tree {
    fn inode(&mut self, node: Node) -> Result<&mut Inode> {
        self.inodes.get_mut(&node).ok_or(Errno::STALE)
    }

    fn directory(&mut self, node: Node) -> Result<&mut Directory> {
        match &mut self.inode(node)?.what {
            What::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Looks up `name`; `None` if it does not exist.
    fn find(&mut self, directory: Node, name: &[u8]) -> Result<Option<Node>> {
        let directory = self.directory(directory)?;
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(directory.names.get(name).map(|(_, node)| *node))
    }

    /// Checks that `name` can be added: the name is unused and the directory is not removed.
    fn room(&mut self, directory: Node, name: &[u8]) -> Result<()> {
        if self.find(directory, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.alive(directory)
    }

    /// Checks that the directory is not removed: a removed directory accepts no names.
    fn alive(&mut self, directory: Node) -> Result<()> {
        if self.inode(directory)?.links == 0 { Err(Errno::NOENT) } else { Ok(()) }
    }

    fn is_directory(&self, node: Node) -> bool {
        self.inodes.get(&node).is_some_and(|inode| inode.kind() == Kind::Directory)
    }

    fn empty(&mut self, node: Node) -> Result<bool> {
        Ok(self.directory(node)?.names.is_empty())
    }

    /// Returns whether `above` is `below` or an ancestor of it.
    fn above(&mut self, above: Node, mut below: Node) -> Result<bool> {
        while above != below {
            if below == ROOT {
                return Ok(false);
            }
            below = self.directory(below)?.parent;
        }
        Ok(true)
    }

    /// Removes one link to the node. For a directory, the only name is removed, and `directory`
    /// loses the link from its `..`.
    fn drop_link(&mut self, directory: Node, node: Node, now: Time) -> Result<()> {
        let is_directory = self.is_directory(node);
        let inode = self.inode(node)?;
        inode.links = if is_directory { 0 } else { inode.links - 1 };
        inode.ctime = now;
        if is_directory {
            self.inode(directory)?.links -= 1;
        }
        self.bury(node);
        Ok(())
    }

    /// Deletes a node without links and references.
    fn bury(&mut self, node: Node) {
        if self.inodes.get(&node).is_some_and(|inode| inode.links == 0 && inode.references == 0) {
            self.inodes.remove(&node);
        }
    }
}
