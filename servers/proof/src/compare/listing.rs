//! Directory listings in portions, with changes to the directory between them.

use std::collections::{BTreeMap, BTreeSet};

use kumihimo_store::{Errno, Handle, Kind, Node, Result, Store};

use super::checked::{Both, Checked};

/// A directory entry: name, inode, and type.
type Said = (Vec<u8>, Node, Option<Kind>);

/// An active listing of a directory in the store under test.
pub struct Listing {
    pub node: Both,
    pub handle: Handle,
    offset: u64,
    seen: BTreeMap<Vec<u8>, (Node, Option<Kind>)>,
    /// Names present at the start.
    begun: BTreeSet<Vec<u8>>,
    /// Names added or removed since: each may be listed or not.
    touched: BTreeSet<Vec<u8>>,
    removed: bool,
}

impl Listing {
    pub fn new(node: Both, handle: Handle, names: BTreeSet<Vec<u8>>) -> Listing {
        Listing {
            node,
            handle,
            offset: 0,
            seen: BTreeMap::new(),
            begun: names,
            touched: BTreeSet::new(),
            removed: false,
        }
    }

    /// Notes that a name was added or removed.
    pub fn touch(&mut self, name: &[u8]) {
        self.touched.insert(name.to_vec());
    }

    /// Notes that the directory was removed. `.` and `..` may then be missing, and the listing may
    /// fail, because the kernel reads no entries of a removed directory.
    pub fn removed(&mut self) {
        self.removed = true;
        self.touch(b".");
        self.touch(b"..");
    }

    /// Reads `count` names and refuses the next one. Returns whether the end was reached.
    pub fn portion(&mut self, store: &dyn Store, count: u8) -> Checked<bool> {
        let (mut left, mut ended, mut refused) = (count, true, None);
        let mut twice = None;
        let (seen, touched, offset) = (&mut self.seen, &self.touched, &mut self.offset);
        let mut calls_after = false;
        let result = store.read_directory(self.node.subject, self.handle, *offset, &mut |listed| {
            calls_after |= !ended;
            if left == 0 {
                (ended, refused) = (false, Some(listed.name.to_vec()));
                return false;
            }
            left -= 1;
            *offset = listed.next;
            let earlier = seen.insert(listed.name.to_vec(), (listed.node, listed.kind));
            if earlier.is_some() && !touched.contains(listed.name) {
                twice = Some(listed.name.to_vec());
            }
            true
        });
        if let Err(errno) = result {
            if self.removed && errno == Errno::NOENT {
                return Ok(true);
            }
            return Err(format!("the listing failed: {errno}"));
        }
        match twice {
            Some(name) => Err(format!("{:?} was listed twice", String::from_utf8_lossy(&name))),
            None if calls_after => {
                Err("the store continued after the callback had refused an entry".to_owned())
            }
            None => Ok(ended),
        }
    }

    /// Reads the rest, then checks that each name that existed throughout was listed.
    pub fn finish(&mut self, store: &dyn Store, portion: u8) -> Checked<Vec<Said>> {
        let mut rounds = 0;
        while !self.portion(store, portion)? {
            rounds += 1;
            if rounds > 10_000 {
                return Err("the listing does not end".to_owned());
            }
        }
        let quoted = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
        if let Some(name) = self
            .begun
            .iter()
            .find(|name| !self.seen.contains_key(*name) && !self.touched.contains(*name))
        {
            return Err(format!("{:?} was not listed", quoted(name)));
        }
        if let Some(name) = self
            .seen
            .keys()
            .find(|name| !self.begun.contains(*name) && !self.touched.contains(*name))
        {
            return Err(format!("{:?} was listed but does not exist", quoted(name)));
        }
        Ok(self
            .seen
            .iter()
            .filter(|(name, _)| !self.touched.contains(*name))
            .map(|(name, (node, kind))| (name.clone(), *node, *kind))
            .collect())
    }
}

/// All names in a directory except `.` and `..`.
pub fn names(store: &dyn Store, node: Node) -> Result<Vec<Vec<u8>>> {
    let handle = store.open(node, 0)?;
    let mut names = Vec::new();
    let listed = store.read_directory(node, handle, 0, &mut |listed| {
        names.push(listed.name.to_vec());
        true
    });
    store.release(node, handle);
    names.retain(|name| name != b"." && name != b"..");
    listed.map(|()| names)
}
