//! The clock as a store: a directory of three files. Every read of a file returns the current time.

use kumihimo_store::{
    Attributes, Caller, Changes, Entry, Errno, Handle, Kind, Listed, New, Node, Result, Seek,
    Statistics, Store, Time, XattrMode,
};

use crate::Reading;

/// The directory.
const ROOT: Node = Node(1);
/// Node of the first reading. The nodes of the others follow.
const FIRST: u64 = 2;
/// Size of a file: nineteen digits, which suffice until the year 2286, and a line feed.
const ANSWER: u64 = 20;

/// The clock.
#[derive(Debug)]
pub struct Clock {
    since: Time,
}

impl Clock {
    /// Creates a clock that reads the system's clocks.
    #[must_use]
    pub fn new() -> Clock {
        Clock { since: Time::now() }
    }

    fn reading(node: Node) -> Option<Reading> {
        Reading::ALL.get(usize::try_from(node.0.checked_sub(FIRST)?).ok()?).copied()
    }

    fn entry(&self, node: Node) -> Result<Entry> {
        Ok(Entry { generation: 0, attributes: self.attributes(node)? })
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl Store for Clock {
    fn root(&self) -> Node {
        ROOT
    }

    fn lookup(&self, directory: Node, name: &[u8]) -> Result<Entry> {
        match (directory, name) {
            (ROOT, b"." | b"..") => self.entry(ROOT),
            (ROOT, name) => {
                let found = (FIRST..)
                    .zip(Reading::ALL)
                    .find(|(_, reading)| reading.name().as_bytes() == name);
                self.entry(Node(found.ok_or(Errno::NOENT)?.0))
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    fn forget(&self, _: Node, _: u64) {}

    fn attributes(&self, node: Node) -> Result<Attributes> {
        let (kind, permissions, size, links) = match Clock::reading(node) {
            Some(_) => (Kind::File, 0o444, ANSWER, 1),
            None if node == ROOT => (Kind::Directory, 0o555, 0, 2),
            None => return Err(Errno::STALE),
        };
        let (atime, mtime, ctime) = (self.since, self.since, self.since);
        Ok(Attributes {
            node,
            size,
            blocks: 0,
            atime,
            mtime,
            ctime,
            kind,
            permissions,
            links,
            uid: 0,
            gid: 0,
            device: 0,
            block_size: 4096,
        })
    }

    fn change(&self, _: Node, _: &Changes) -> Result<Attributes> {
        Err(Errno::ROFS)
    }

    fn read_link(&self, _: Node) -> Result<Vec<u8>> {
        Err(Errno::INVAL)
    }

    fn make(&self, _: &Caller, _: Node, _: &[u8], _: New<'_>) -> Result<Entry> {
        Err(Errno::ROFS)
    }

    fn unlink(&self, _: Node, _: &[u8]) -> Result<()> {
        Err(Errno::ROFS)
    }

    fn remove_directory(&self, _: Node, _: &[u8]) -> Result<()> {
        Err(Errno::ROFS)
    }

    fn rename(&self, _: Node, _: &[u8], _: Node, _: &[u8], _: bool) -> Result<()> {
        Err(Errno::ROFS)
    }

    fn link(&self, _: Node, _: Node, _: &[u8]) -> Result<Entry> {
        Err(Errno::ROFS)
    }

    fn open(&self, node: Node, _: u32) -> Result<Handle> {
        self.attributes(node).map(|_| Handle(0))
    }

    fn release(&self, _: Node, _: Handle) {}

    /// Returns the time of this read, independent of earlier reads through the same handle.
    fn read(&self, node: Node, _: Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        let reading = Clock::reading(node).ok_or(Errno::ISDIR)?;
        let answer = format!("{:019}\n", reading.nanoseconds());
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|from| answer.as_bytes().get(from..))
            .unwrap_or(&[]);
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write(&self, _: Node, _: Handle, _: u64, _: &[u8]) -> Result<usize> {
        Err(Errno::ROFS)
    }

    fn sync(&self, _: Node, _: Handle, _: bool) -> Result<()> {
        Ok(())
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
        if node != ROOT {
            return Err(Errno::NOTDIR);
        }
        let dots = [(ROOT, Kind::Directory, "."), (ROOT, Kind::Directory, "..")];
        let files = (FIRST..)
            .zip(Reading::ALL)
            .map(|(node, reading)| (Node(node), Kind::File, reading.name()));
        let all = (1..).zip(dots.into_iter().chain(files));
        for (next, (node, kind, name)) in all.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if !take(Listed { node, next, kind: Some(kind), name: name.as_bytes() }) {
                break;
            }
        }
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics { block_size: 4096, inodes: 4, longest_name: 255, ..Default::default() })
    }

    fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::NOTSUP)
    }

    fn xattrs(&self, _: Node) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn set_xattr(&self, _: Node, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        Err(Errno::ROFS)
    }

    fn remove_xattr(&self, _: Node, _: &[u8]) -> Result<()> {
        Err(Errno::ROFS)
    }

    fn allocate(&self, _: Node, _: Handle, _: u32, _: u64, _: u64) -> Result<()> {
        Err(Errno::ROFS)
    }

    fn seek(&self, _: Node, _: Handle, _: u64, _: Seek) -> Result<u64> {
        Err(Errno::INVAL)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
