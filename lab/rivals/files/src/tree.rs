//! Files and directories in memory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, RwLock};

use rustix::time::{ClockId, clock_gettime};

/// Number of the root in the FUSE protocol.
pub const ROOT: u64 = 1;
/// ENOENT, EEXIST, ENOTDIR, EISDIR: linux/errno-base.h.
pub const ENOENT: i32 = 2;
pub const EEXIST: i32 = 17;
pub const ENOTDIR: i32 = 20;
pub const EISDIR: i32 = 21;

/// Node numbers by name, unordered.
type Names = HashMap<Box<[u8]>, u64>;

/// A node.
#[derive(Clone)]
pub enum Node {
    Directory(Arc<RwLock<Names>>),
    File(Arc<RwLock<Vec<u8>>>),
    /// The clock: each read returns the current time. The cheapest possible request.
    Clock,
}

/// A name with its node number.
pub type Entry = (Box<[u8]>, u64);

/// All nodes.
pub struct Tree {
    nodes: RwLock<Nodes>,
}

struct Nodes {
    by_number: HashMap<u64, Node>,
    next: u64,
}

/// CLOCK_REALTIME in seconds and nanoseconds.
pub fn now() -> (u64, u32) {
    let now = clock_gettime(ClockId::Realtime);
    (now.tv_sec as u64, now.tv_nsec as u32)
}

impl Tree {
    /// Copies `directory` and adds a file `now` to its root.
    pub fn of(directory: &Path) -> io::Result<Tree> {
        let mut nodes = Nodes { by_number: HashMap::new(), next: ROOT };
        nodes.take_over(directory)?;
        let Node::Directory(root) = &nodes.by_number[&ROOT] else { unreachable!("taken over as a directory") };
        let root = root.clone();
        let clock = nodes.add(Node::Clock);
        root.write().unwrap().insert(Box::from(&b"now"[..]), clock);
        Ok(Tree { nodes: RwLock::new(nodes) })
    }

    pub fn get(&self, number: u64) -> Result<Node, i32> {
        self.nodes.read().unwrap().by_number.get(&number).cloned().ok_or(ENOENT)
    }

    /// The directory with this number.
    fn directory(&self, number: u64) -> Result<Arc<RwLock<Names>>, i32> {
        match self.get(number)? {
            Node::Directory(names) => Ok(names),
            _ => Err(ENOTDIR),
        }
    }

    pub fn look_up(&self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        self.directory(parent)?.read().unwrap().get(name).copied().ok_or(ENOENT)
    }

    pub fn create(&self, parent: u64, name: &[u8], node: Node) -> Result<u64, i32> {
        let directory = self.directory(parent)?;
        let mut names = directory.write().unwrap();
        if names.contains_key(name) {
            return Err(EEXIST);
        }
        let number = self.nodes.write().unwrap().add(node);
        names.insert(Box::from(name), number);
        Ok(number)
    }

    /// Removes a file and its name. No load reads an unlinked file.
    pub fn unlink(&self, parent: u64, name: &[u8]) -> Result<(), i32> {
        let directory = self.directory(parent)?;
        let mut names = directory.write().unwrap();
        let number = *names.get(name).ok_or(ENOENT)?;
        let mut nodes = self.nodes.write().unwrap();
        if matches!(nodes.by_number.get(&number), Some(Node::Directory(_))) {
            return Err(EISDIR);
        }
        names.remove(name);
        nodes.by_number.remove(&number);
        Ok(())
    }

    /// Names with their numbers, in an order that is stable while nothing changes.
    pub fn list(&self, number: u64) -> Result<Vec<Entry>, i32> {
        let mut all: Vec<_> =
            self.directory(number)?.read().unwrap().iter().map(|(name, number)| (name.clone(), *number)).collect();
        all.sort_unstable();
        Ok(all)
    }
}

impl Nodes {
    fn add(&mut self, node: Node) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, node);
        number
    }

    /// Copies a directory. Its number is assigned before those of its contents, so the first one is
    /// the root.
    fn take_over(&mut self, directory: &Path) -> io::Result<u64> {
        let names = Arc::new(RwLock::new(HashMap::new()));
        let number = self.add(Node::Directory(names.clone()));
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let child = match entry.file_type()?.is_dir() {
                true => self.take_over(&entry.path())?,
                false => self.add(Node::File(Arc::new(RwLock::new(fs::read(entry.path())?)))),
            };
            names.write().unwrap().insert(Box::from(entry.file_name().as_bytes()), child);
        }
        Ok(number)
    }
}
