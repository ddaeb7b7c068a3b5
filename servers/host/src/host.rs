//! The store that serves a host directory.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use kumihimo_store::{
    Attributes, Caller, Changes, Entry, Errno, Handle, Kind, Listed, New, Node, Result, Seek,
    Statistics, Store, XattrMode,
};
use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags, fallocate, getxattr,
    getxattr_query, listxattr, listxattr_query, readlinkat, removexattr, renameat_with, setxattr,
    unlinkat,
};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::inode::{Descriptor, Inode};
use crate::nodes::{Nodes, entry};
use crate::opened::{Handles, Opened};
use crate::resolve::{Seen, changeable, magic, open_above, open_beneath, open_root, reopen};
use crate::{change, make};

/// How the contents of files are accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// With plain system calls, which block the kernel thread.
    #[default]
    Plain,
    /// With `kumihimo::fs`: in a microprocess, calls may enter the kernel in batches or be handed
    /// to a thread that waits for the disk.
    Kumihimo,
}

/// Settings of a served directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Refuse every change with `EROFS`.
    pub read_only: bool,
    /// How files are read and written.
    pub access: Access,
    /// True if the client's kernel caches writes. It then also reads through handles that are
    /// opened for writing only, and determines the offsets of appends itself.
    pub write_back: bool,
}

/// The open(2) flags that are passed to the host. `O_DIRECT` is not passed, because it would
/// require aligned buffers. `O_NOATIME` is not passed, because only the owner may use it.
const PASSED: OFlags =
    OFlags::APPEND.union(OFlags::SYNC).union(OFlags::DSYNC).union(OFlags::DIRECTORY);

/// Number of attempts to look up a name that other processes change concurrently.
const TRIES: usize = 64;

/// A served directory of the host. See the documentation of the crate.
pub struct Host {
    nodes: Nodes,
    handles: Handles,
    settings: Settings,
    /// The root opened for reading: syncfs(2) takes no other descriptor.
    readable: OwnedFd,
    as_root: bool,
}

impl Host {
    /// Serves the directory `path`. Raises the process's soft limit of open files to the hard one.
    ///
    /// As open(2) for reading. `NotADirectory`. `Unsupported` before Linux 5.8, which lacks
    /// openat2(2) or `STATX_ATTR_MOUNT_ROOT`.
    pub fn open(path: &Path, settings: Settings) -> io::Result<Host> {
        let (root, readable) = open_root(path)?;
        match open_beneath(&root, b".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOSYS) => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "openat2(2) is unavailable; Linux 5.8 or later is required",
                ));
            }
            other => drop(other?),
        }
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current < limit.maximum {
            limit.current = limit.maximum;
            setrlimit(Resource::Nofile, limit)?;
        }
        let most = usize::try_from(limit.current.unwrap_or(u64::MAX) / 2).unwrap_or(usize::MAX);
        let as_root = rustix::process::geteuid().is_root();
        Ok(Host {
            nodes: Nodes::new(root, most)?,
            handles: Handles::default(),
            settings,
            readable,
            as_root,
        })
    }

    pub(crate) fn readable(&self) -> &OwnedFd {
        &self.readable
    }

    fn writable(&self) -> Result<()> {
        if self.settings.read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    fn found(&self, node: Node) -> Result<(Arc<Inode>, Arc<Descriptor>)> {
        let inode = self.nodes.inode(node)?;
        let descriptor = self.nodes.descriptor(&inode)?;
        Ok((inode, descriptor))
    }

    /// As [`found`](Host::found), for a directory.
    fn directory(&self, node: Node) -> Result<(Arc<Inode>, Arc<Descriptor>)> {
        let found = self.found(node)?;
        if found.0.identity.kind == Kind::Directory { Ok(found) } else { Err(Errno::NOTDIR) }
    }

    /// Counts one more reference to a node.
    fn referred(&self, inode: &Arc<Inode>) -> Result<Entry> {
        let seen = Seen::at(&*self.nodes.descriptor(inode)?)?;
        self.nodes.refer(inode)?;
        Ok(entry(inode, &seen))
    }

    /// The parent of a directory other than the root.
    fn above(&self, directory: &Descriptor) -> Result<Entry> {
        let opened = self.nodes.spared(|| open_above(directory))?;
        let seen = Seen::at(&opened)?;
        // The path upwards must reach the served root. At the root of the host's file system, a
        // directory is its own parent.
        let (mut at, mut below) = (seen.identity, None);
        let mut climbed = None;
        while at != self.nodes.root().identity {
            if below == Some(at) {
                return Err(Errno::STALE);
            }
            let next = self.nodes.spared(|| open_above(climbed.as_ref().unwrap_or(&opened)))?;
            below = Some(at);
            at = Seen::at(&next)?.identity;
            climbed = Some(next);
        }
        Ok(self.nodes.enter(&seen, opened).1)
    }

    fn handle(&self, handle: Handle) -> Result<Arc<Opened>> {
        self.handles.get(handle)
    }
}

/// Calls `read` with a buffer of the size that `size` returns. Repeats if the size has changed in
/// between.
fn sized(
    size: impl Fn() -> Result<usize>,
    read: impl Fn(&mut Vec<u8>) -> Result<usize>,
) -> Result<Vec<u8>> {
    loop {
        let mut value = Vec::with_capacity(size()?);
        if value.capacity() == 0 {
            return Ok(value);
        }
        match read(&mut value) {
            Err(Errno::RANGE) => {}
            other => return other.map(|_| value),
        }
    }
}

impl Store for Host {
    fn root(&self) -> Node {
        self.nodes.root().number
    }

    fn lookup(&self, directory: Node, name: &[u8]) -> Result<Entry> {
        let (inode, above) = self.directory(directory)?;
        match name {
            b"." => return self.referred(&inode),
            b".." if Arc::ptr_eq(&inode, self.nodes.root()) => return self.referred(&inode),
            b".." => return self.above(&above),
            _ => {}
        }
        for _ in 0..TRIES {
            let departures = self.nodes.departures();
            let seen = Seen::beneath(&*above, name)?;
            if seen.is_mount {
                return Err(Errno::XDEV);
            }
            let (found, entry) = match self.nodes.known(&seen) {
                Some(known) => known,
                None => match self
                    .nodes
                    .spared(|| open_beneath(&*above, name, OFlags::PATH, Mode::empty()))
                {
                    // The name was renamed or mounted over between the two system calls.
                    Err(Errno::XDEV | Errno::AGAIN) => continue,
                    opened => {
                        let opened = opened?;
                        self.nodes.enter(&Seen::at(&opened)?, opened)
                    }
                },
            };
            self.nodes.place(&found, &inode, name, departures);
            return Ok(entry);
        }
        Err(Errno::AGAIN)
    }

    fn forget(&self, node: Node, references: u64) {
        self.nodes.forget(node, references);
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        let (_, descriptor) = self.found(node)?;
        Ok(Seen::at(&*descriptor)?.attributes(node))
    }

    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes> {
        self.writable()?;
        let (inode, descriptor) = self.found(node)?;
        let seen =
            self.nodes.spared(|| change::change(&descriptor, inode.identity.kind, changes))?;
        Ok(seen.attributes(node))
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>> {
        let (inode, descriptor) = self.found(node)?;
        if inode.identity.kind != Kind::Symlink {
            return Err(Errno::INVAL);
        }
        Ok(readlinkat(&*descriptor, "", Vec::new())?.into_bytes())
    }

    fn make(&self, caller: &Caller, directory: Node, name: &[u8], what: New<'_>) -> Result<Entry> {
        self.writable()?;
        let name = changeable(name)?;
        let (inode, above) = self.directory(directory)?;
        let departures = self.nodes.departures();
        let (made, seen) =
            self.nodes.spared(|| make::make(&above, name, what, caller, self.as_root))?;
        let (made, entry) = self.nodes.enter(&seen, made);
        self.nodes.place(&made, &inode, name, departures);
        Ok(entry)
    }

    fn unlink(&self, directory: Node, name: &[u8]) -> Result<()> {
        self.remove(directory, name, AtFlags::empty())
    }

    fn remove_directory(&self, directory: Node, name: &[u8]) -> Result<()> {
        self.remove(directory, name, AtFlags::REMOVEDIR)
    }

    fn rename(&self, from: Node, name: &[u8], to: Node, new_name: &[u8], keep: bool) -> Result<()> {
        self.writable()?;
        let (name, new_name) = (changeable(name)?, changeable(new_name)?);
        let ((_, old_above), (new, new_above)) = (self.directory(from)?, self.directory(to)?);
        let moving = self.nodes.departing(&old_above, name)?;
        let replaced = self.nodes.departing(&new_above, new_name)?;
        let flags = if keep { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        renameat_with(&*old_above, name, &*new_above, new_name, flags)?;
        self.nodes.departed(replaced, &new, new_name);
        self.nodes.moved(moving, &new, new_name);
        Ok(())
    }

    fn link(&self, node: Node, directory: Node, name: &[u8]) -> Result<Entry> {
        self.writable()?;
        let name = changeable(name)?;
        let ((inode, descriptor), (above, into)) = (self.found(node)?, self.directory(directory)?);
        let departures = self.nodes.departures();
        make::link(&*descriptor, &into, name)?;
        self.nodes.place(&inode, &above, name, departures);
        self.referred(&inode)
    }

    fn open(&self, node: Node, flags: u32) -> Result<Handle> {
        let (inode, descriptor) = self.found(node)?;
        let flags = OFlags::from_bits_retain(flags);
        let mut access = flags & OFlags::ACCMODE;
        if access != OFlags::RDONLY {
            self.writable()?;
        }
        let mut passed = flags & PASSED;
        if self.settings.write_back {
            passed -= OFlags::APPEND;
            if access == OFlags::WRONLY {
                access = OFlags::RDWR;
            }
        }
        let opened = match inode.identity.kind {
            Kind::File | Kind::Directory => {
                self.nodes.spared(|| reopen(&*descriptor, access | passed))
            }
            Kind::Symlink => Err(Errno::LOOP),
            // The client's kernel handles FIFOs, sockets and devices itself.
            _ => Err(Errno::NXIO),
        };
        let opened = match opened {
            // The file is not readable. Write-only access suffices for most clients.
            Err(Errno::ACCESS) if access == OFlags::RDWR && flags.contains(OFlags::WRONLY) => {
                self.nodes.spared(|| reopen(&*descriptor, OFlags::WRONLY | passed))?
            }
            other => other?,
        };
        Ok(self.handles.add(match (inode.identity.kind, self.settings.access) {
            (Kind::Directory, _) => Opened::directory(opened),
            (_, Access::Plain) => Opened::Plain(opened.into()),
            (_, Access::Kumihimo) => Opened::Kumihimo(std::fs::File::from(opened).into()),
        }))
    }

    fn release(&self, _: Node, handle: Handle) {
        self.handles.remove(handle);
    }

    fn read(&self, _: Node, handle: Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.handle(handle)?.read(offset, into)
    }

    fn write(&self, _: Node, handle: Handle, offset: u64, from: &[u8]) -> Result<usize> {
        self.writable()?;
        self.handle(handle)?.write(offset, from)
    }

    fn sync(&self, _: Node, handle: Handle, data: bool) -> Result<()> {
        self.handle(handle)?.sync(data)
    }

    fn sync_all(&self) -> Result<()> {
        rustix::fs::syncfs(&self.readable)
    }

    fn read_directory(
        &self,
        node: Node,
        handle: Handle,
        offset: u64,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        // The directory above the root has no node.
        let above = (node == self.root()).then_some(node);
        self.handle(handle)?.list(offset, above, take)
    }

    fn statistics(&self) -> Result<Statistics> {
        let host = rustix::fs::fstatvfs(&self.readable)?;
        Ok(Statistics {
            // The unit of the block counts is `f_frsize`: see statvfs(3).
            block_size: u32::try_from(host.f_frsize).unwrap_or(u32::MAX),
            blocks: host.f_blocks,
            free: host.f_bfree,
            available: host.f_bavail,
            inodes: host.f_files,
            free_inodes: host.f_ffree,
            longest_name: u32::try_from(host.f_namemax).unwrap_or(u32::MAX),
        })
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        let (_, descriptor) = self.found(node)?;
        let path = magic(&*descriptor);
        sized(
            || getxattr_query(&*path, name),
            |value| getxattr(&*path, name, spare_capacity(value)),
        )
    }

    fn xattrs(&self, node: Node) -> Result<Vec<u8>> {
        let (_, descriptor) = self.found(node)?;
        let path = magic(&*descriptor);
        sized(|| listxattr_query(&*path), |names| listxattr(&*path, spare_capacity(names)))
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.writable()?;
        let (_, descriptor) = self.found(node)?;
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        setxattr(magic(&*descriptor), name, value, flags)
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        let (_, descriptor) = self.found(node)?;
        removexattr(magic(&*descriptor), name)
    }

    fn allocate(&self, _: Node, handle: Handle, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.writable()?;
        let opened = self.handle(handle)?;
        let mode = FallocateFlags::from_bits_retain(mode);
        self.nodes.spared(|| fallocate(&*opened, mode, offset, length))
    }

    fn seek(&self, _: Node, handle: Handle, offset: u64, what: Seek) -> Result<u64> {
        // The seek changes the position of the host's descriptor only. Reads and writes use
        // explicit offsets.
        let offset = i64::try_from(offset).map_err(|_| Errno::NXIO)?.cast_unsigned();
        rustix::fs::seek(
            &*self.handle(handle)?,
            match what {
                Seek::Data => SeekFrom::Data(offset),
                Seek::Hole => SeekFrom::Hole(offset),
            },
        )
    }

    fn close(&self) -> Result<()> {
        if self.settings.read_only { Ok(()) } else { self.sync_all() }
    }
}

impl Host {
    fn remove(&self, directory: Node, name: &[u8], flags: AtFlags) -> Result<()> {
        self.writable()?;
        let name = changeable(name)?;
        let (inode, above) = self.directory(directory)?;
        let departing = self.nodes.departing(&above, name)?;
        unlinkat(&*above, name, flags)?;
        self.nodes.departed(departing, &inode, name);
        Ok(())
    }
}
