//! Implementation of [`Store`] for `Ext2`.

use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::{
    Attributes, Caller, Changes, Entry, Errno, Handle, Kind, Listed, New, Node, Result, Seek,
    Stamp, Statistics, Store, Time, XattrMode,
};

use crate::Ext2;
use crate::layout::dirent;
use crate::layout::inode::{APPEND, IMMUTABLE, storable};
use crate::memory::inodes::{Inode, ROOT};

/// `O_ACCMODE` and `O_APPEND` of open(2).
const ACCESS: u32 = 3;
const APPENDING: u32 = 0o2000;
const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

impl Store for Ext2 {
    fn root(&self) -> Node {
        Node(u64::from(ROOT))
    }

    fn lookup(&self, directory: Node, name: &[u8]) -> Result<Entry> {
        let directory = self.held_directory(directory)?;
        let found = match name {
            b"." => directory,
            b".." if directory.number == ROOT => directory,
            _ => self.look_up(&directory, name)?.ok_or(Errno::NOENT)?,
        };
        self.entry(&found)
    }

    fn forget(&self, node: Node, references: u64) {
        if node != self.root() {
            self.forget_inode(node, references);
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        self.show(node)
    }

    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes> {
        let inode = self.held(node)?;
        self.writable()?;
        let flags = inode.state().fields.flags;
        if flags & IMMUTABLE != 0 || (flags & APPEND != 0 && !only_touches(changes)) {
            return Err(Errno::PERM);
        }
        if let Some(size) = changes.size {
            self.truncate(&inode, size)?;
        }
        if let Some(permissions) = changes.permissions {
            self.set_mode_of_list(&inode, permissions)?;
        }
        self.change_fields(&inode, changes)?;
        self.show(node)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>> {
        let inode = self.held(node)?;
        let (short, size, block) = {
            let state = inode.state();
            if state.kind() != Kind::Symlink {
                return Err(Errno::INVAL);
            }
            let short = state
                .fields
                .is_short_link(self.geometry.block_size)
                .then(|| state.fields.short_link());
            (short, usize::try_from(state.fields.size).unwrap_or(0), state.fields.block)
        };
        self.touch(&inode);
        if let Some(short) = short {
            return Ok(short);
        }
        let start = self.find_extent(inode.number, &block, 0, 1)?.start.ok_or_else(|| {
            self.complaints
                .damage(format_args!("inode {}: a symbolic link without its block", inode.number));
            Errno::IO
        })?;
        self.cache.read(start, |bytes| bytes[..size.min(bytes.len())].to_vec())
    }

    fn make(&self, caller: &Caller, directory: Node, name: &[u8], what: New<'_>) -> Result<Entry> {
        self.make_name(caller, directory, name, what)
    }

    fn unlink(&self, directory: Node, name: &[u8]) -> Result<()> {
        self.unlink_name(directory, name)
    }

    fn remove_directory(&self, directory: Node, name: &[u8]) -> Result<()> {
        self.remove_empty(directory, name)
    }

    fn rename(&self, from: Node, name: &[u8], to: Node, new_name: &[u8], keep: bool) -> Result<()> {
        self.rename_name(from, name, to, new_name, keep)
    }

    fn link(&self, node: Node, directory: Node, name: &[u8]) -> Result<Entry> {
        self.link_name(node, directory, name)
    }

    fn open(&self, node: Node, flags: u32) -> Result<Handle> {
        let inode = self.held(node)?;
        if flags & ACCESS != 0 {
            let (kind, has) = {
                let state = inode.state();
                (state.kind(), state.fields.flags)
            };
            if kind == Kind::Directory {
                return Err(Errno::ISDIR);
            }
            self.writable()?;
            if has & IMMUTABLE != 0 || (has & APPEND != 0 && flags & APPENDING == 0) {
                return Err(Errno::PERM);
            }
        }
        Ok(Handle(0))
    }

    fn release(&self, _: Node, _: Handle) {}

    fn read(&self, node: Node, _: Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_file(&self.held(node)?, offset, into)
    }

    fn write(&self, node: Node, _: Handle, offset: u64, from: &[u8]) -> Result<usize> {
        self.write_file(&self.held(node)?, offset, from, Some((self.now)()))
    }

    fn write_kept(&self, node: Node, _: Handle, offset: u64, from: &[u8]) -> Result<usize> {
        self.write_file(&self.held(node)?, offset, from, None)
    }

    fn sync(&self, node: Node, _: Handle, _: bool) -> Result<()> {
        if self.read_only { Ok(()) } else { self.commit_inode(&*self.held(node)?) }
    }

    fn sync_all(&self) -> Result<()> {
        if self.read_only || !self.is_dirty() { Ok(()) } else { self.commit() }
    }

    fn read_directory(
        &self,
        node: Node,
        _: Handle,
        offset: u64,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let directory = self.held_directory(node)?;
        let _lock = directory.lock.read().unwrap_or_else(PoisonError::into_inner);
        self.list(&directory, offset, take)?;
        self.touch(&directory);
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        Ok(self.space())
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        self.get_attribute(&*self.held(node)?, name)
    }

    fn xattrs(&self, node: Node) -> Result<Vec<u8>> {
        self.list_attributes(&*self.held(node)?)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.set_attribute(&self.held(node)?, name, Some(value), mode)
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.set_attribute(&self.held(node)?, name, None, XattrMode::Any)
    }

    fn allocate(&self, node: Node, _: Handle, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.allocate_range(&self.held(node)?, mode, offset, length)
    }

    fn seek(&self, node: Node, _: Handle, offset: u64, what: Seek) -> Result<u64> {
        self.seek_in(&*self.held(node)?, offset, what)
    }

    fn close(&self) -> Result<()> {
        self.end_mount()
    }
}

/// Returns whether an append-only file permits the changes: only its times may be set, to the
/// current time.
fn only_touches(changes: &Changes) -> bool {
    let now = |stamp: Option<Stamp>| matches!(stamp, None | Some(Stamp::Now));
    changes.permissions.is_none()
        && changes.uid.is_none()
        && changes.gid.is_none()
        && now(changes.atime)
        && now(changes.mtime)
}

impl Ext2 {
    fn change_fields(&self, inode: &Arc<Inode>, changes: &Changes) -> Result<()> {
        let now = (self.now)();
        let moment = |stamp: Stamp| match stamp {
            Stamp::At(time) => storable(time, self.geometry.inode_size),
            Stamp::Now => now,
        };
        self.modify(|_| {
            self.change_inode(inode, |state| {
                let fields = &mut state.fields;
                if let Some(permissions) = changes.permissions {
                    let permissions = u16::try_from(permissions & 0o7777).unwrap_or(0);
                    fields.mode = (fields.mode & !0o7777) | permissions;
                }
                if changes.kill_privileges {
                    fields.mode &= !SETUID;
                    if fields.mode & GROUP_EXECUTE != 0 {
                        fields.mode &= !SETGID;
                    }
                }
                fields.uid = changes.uid.unwrap_or(fields.uid);
                fields.gid = changes.gid.unwrap_or(fields.gid);
                fields.atime = changes.atime.map_or(fields.atime, moment);
                fields.mtime = changes.mtime.map_or(fields.mtime, moment);
                fields.ctime = changes.ctime.unwrap_or(now);
            });
            Ok(())
        })
    }

    fn list(
        &self,
        directory: &Inode,
        offset: u64,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let size = self.geometry.block_size as u64;
        let blocks = self.directory_blocks(directory)?;
        let numbers = directory.state().fields.block;
        let mut bytes = vec![0; self.geometry.block_size];
        for logical in offset / size..blocks {
            let ahead = u32::try_from((blocks - logical).min(32)).unwrap_or(1);
            let extent = self.find_extent(directory.number, &numbers, logical, ahead)?;
            let Some(block) = extent.start else {
                self.complaints
                    .damage(format_args!("inode {}: a directory with a hole", directory.number));
                return Err(Errno::IO);
            };
            // Copied, because `take` may be slow and the shard's lock must not be held.
            self.cache.read_run(block, extent.count, |from| bytes.copy_from_slice(from))?;
            for entry in dirent::entries(&bytes, self.geometry.inodes) {
                let entry = entry.map_err(|wrong| {
                    self.complaints.damage(format_args!(
                        "inode {}: a directory: in its block {block}: {wrong}",
                        directory.number
                    ));
                    Errno::IO
                })?;
                let at = logical * size + entry.at as u64;
                if at < offset || entry.number == 0 {
                    continue;
                }
                let node = Node(u64::from(entry.number));
                let kind = if self.says_kinds() { dirent::kind_of(entry.kind) } else { None };
                if !take(Listed { node, next: at + entry.length as u64, kind, name: entry.name }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the current time of the store's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        (self.now)()
    }
}
