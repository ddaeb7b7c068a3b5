//! Files and directories in memory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, RwLock};

use rustix::time::{ClockId, clock_gettime};

/// The root's number, as FUSE has it.
pub const ROOT: u64 = 1;
/// ENOENT, EEXIST, ENOTDIR, EISDIR: linux/errno-base.h.
pub const ENOENT: i32 = 2;
pub const EEXIST: i32 = 17;
pub const ENOTDIR: i32 = 20;
pub const EISDIR: i32 = 21;

/// Numbers by name; in no order.
type Names = HashMap<Box<[u8]>, u64>;

/// What a number stands for.
#[derive(Clone)]
pub enum Node {
    Directory(Arc<RwLock<Names>>),
    File(Arc<RwLock<Vec<u8>>>),
    /// Each read gives what the time is: the request that costs a server nothing.
    Clock,
}

/// A name and its number.
pub type Entry = (Box<[u8]>, u64);

/// All of them.
pub struct Tree {
    nodes: RwLock<Nodes>,
}

struct Nodes {
    by_number: HashMap<u64, Node>,
    next: u64,
}

/// Seconds and nanoseconds of the clock of the day.
pub fn now() -> (u64, u32) {
    let now = clock_gettime(ClockId::Realtime);
    (now.tv_sec as u64, now.tv_nsec as u32)
}

impl Tree {
    /// A copy of `directory`, and a file `now` in its root.
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

    /// The directory of this number.
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

    /// Takes a file's name away, and the file: nobody here reads what is unlinked.
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

    /// Names with their numbers, in an order that stays while nothing is changed.
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

    /// Its number is given before those of what is in it: the first is the root.
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
