//! Extended attributes, stored in a block. Attributes in the inode's upper half are read, and moved
//! to the block when they change.

use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::acl::{self, Acl};
use kumihimo_store::{Errno, Kind, XattrMode};

use crate::Ext2;
use crate::change::transaction::{Outcome, Transaction};
use crate::layout::inode::{APPEND, IMMUTABLE, attribute_room};
use crate::layout::superblock::EXT_ATTR;
use crate::layout::xattr::{self, Attribute};
use crate::layout::{get32, put32};
use crate::memory::cache::Class;
use crate::memory::inodes::Inode;

/// `XATTR_SIZE_MAX` of linux/limits.h.
const LARGEST: usize = 65536;

impl Ext2 {
    fn inside(&self, inode: &Inode) -> Result<Vec<Attribute>, Errno> {
        let found = {
            let state = inode.state();
            let Some(room) = attribute_room(&state.raw) else { return Ok(Vec::new()) };
            if get32(&state.raw, room.start) != xattr::MAGIC {
                return Ok(Vec::new());
            }
            xattr::read(&state.raw, room.start + 4, room.start + 4)
        };
        found.map_err(|wrong| self.bad_attributes(inode, wrong))
    }

    fn outside(&self, inode: &Inode) -> Result<Vec<Attribute>, Errno> {
        let block = inode.state().fields.acl_block;
        if block == 0 {
            return Ok(Vec::new());
        }
        let found = self.cache.read(block, |bytes| {
            if get32(bytes, 0) != xattr::MAGIC || get32(bytes, 8) != 1 {
                return Err("their block has an invalid magic number");
            }
            xattr::read(bytes, xattr::HEAD, 0)
        })?;
        found.map_err(|wrong| self.bad_attributes(inode, wrong))
    }

    fn bad_attributes(&self, inode: &Inode, wrong: &str) -> Errno {
        self.complaints
            .damage(format_args!("inode {}: its extended attributes: {wrong}", inode.number));
        Errno::IO
    }

    /// Returns the value of an attribute as getxattr(2).
    pub(crate) fn get_attribute(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let _lock = inode.lock.read().unwrap_or_else(PoisonError::into_inner);
        self.attribute(inode, name)
    }

    /// As [`get_attribute`](Ext2::get_attribute), for a caller that holds the inode's lock.
    pub(crate) fn attribute(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let (index, rest) = xattr::split(name)?;
        let all = self.inside(inode)?.into_iter().chain(self.outside(inode)?);
        let mut wanted = all.filter(|attribute| attribute.index == index && attribute.name == rest);
        let found = wanted.next().ok_or(Errno::NODATA)?;
        if xattr::is_acl(index) {
            return xattr::acl_from_disk(&found.value)
                .ok_or_else(|| self.bad_attributes(inode, "not an access control list"));
        }
        Ok(found.value)
    }

    /// Returns the names of attributes as listxattr(2).
    pub(crate) fn list_attributes(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        let _lock = inode.lock.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = Vec::new();
        for attribute in self.inside(inode)?.into_iter().chain(self.outside(inode)?) {
            if let Some(name) = xattr::join(attribute.index, &attribute.name) {
                names.extend_from_slice(&name);
                names.push(0);
            }
        }
        Ok(names)
    }

    /// Sets an attribute as setxattr(2), or removes it as removexattr(2) without a value.
    pub(crate) fn set_attribute(
        &self,
        inode: &Arc<Inode>,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), Errno> {
        self.throttle()?;
        let (index, rest) = xattr::split(name)?;
        if rest.is_empty() != xattr::is_acl(index) {
            return Err(Errno::INVAL);
        }
        if rest.len() > 255 {
            return Err(Errno::RANGE);
        }
        if value.is_some_and(|value| value.len() > LARGEST) {
            return Err(Errno::TOOBIG);
        }
        // Mode of an inode that gets this list.
        let mut list_mode = None;
        let value = match value {
            Some(value) if xattr::is_acl(index) => {
                let list = Acl::decode(value).ok_or(Errno::INVAL)?;
                let is_access = name == acl::ACCESS;
                list_mode = is_access.then(|| list.mode());
                // The mode alone says as much as such a list.
                let is_stored = !(is_access && list.is_mode());
                let disk = xattr::acl_to_disk(value).ok_or(Errno::INVAL)?;
                is_stored.then_some(disk)
            }
            other => other.map(<[u8]>::to_vec),
        };
        let _lock = inode.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.writable()?;
        if inode.state().fields.flags & (IMMUTABLE | APPEND) != 0 {
            return Err(Errno::PERM);
        }
        let (mut inside, mut outside) = (self.inside(inode)?, self.outside(inode)?);
        let is = |attribute: &Attribute| attribute.index == index && attribute.name == rest;
        let there = inside.iter().chain(&outside).any(is);
        match (there, mode) {
            (true, XattrMode::Create) => return Err(Errno::EXIST),
            (false, XattrMode::Replace) => return Err(Errno::NODATA),
            (false, _) if value.is_none() && list_mode.is_none() => return Err(Errno::NODATA),
            _ => {}
        }
        let was_inside = inside.iter().any(is);
        inside.retain(|attribute| !is(attribute));
        outside.retain(|attribute| !is(attribute));
        if let Some(value) = value {
            outside.push(Attribute { index, name: rest.to_vec(), value });
        }
        let block = match outside.is_empty() {
            true => None,
            false => {
                Some(xattr::block(self.geometry.block_size, &mut outside).ok_or(Errno::NOSPC)?)
            }
        };
        self.modify(|transaction| {
            self.put_attributes(transaction, inode, block.as_deref())?;
            let now = (self.now)();
            self.change_inode(inode, |state| {
                state.fields.ctime = now;
                if let Some(mode) = list_mode {
                    let mode = u16::try_from(mode).unwrap_or(0);
                    state.fields.mode = state.fields.mode & !0o777 | mode;
                }
                if was_inside && let Some(room) = attribute_room(&state.raw) {
                    let raw = &mut state.raw[room];
                    raw.fill(0);
                    if !inside.is_empty() {
                        put32(raw, 0, xattr::MAGIC);
                        // The attributes were there before, so without one of them they fit.
                        xattr::write(raw, 4, 4, &mut inside);
                    }
                }
            });
            Ok(())
        })
    }

    /// Changes an inode's access control list as chmod(2) does, if it has one.
    pub(crate) fn set_mode_of_list(&self, inode: &Arc<Inode>, mode: u32) -> Result<(), Errno> {
        let value = match self.get_attribute(inode, acl::ACCESS) {
            Err(Errno::NODATA) => return Ok(()),
            other => other?,
        };
        let mut list = Acl::decode(&value)
            .ok_or_else(|| self.bad_attributes(inode, "not an access control list"))?;
        list.set_mode(mode);
        self.set_attribute(inode, acl::ACCESS, Some(&list.encode()), XattrMode::Any)
    }

    /// Returns the list that new inodes in a directory inherit, for a caller that holds its lock.
    pub(crate) fn default_list(&self, directory: &Inode) -> Result<Option<Acl>, Errno> {
        match self.attribute(directory, acl::DEFAULT) {
            Err(Errno::NODATA) => Ok(None),
            Err(other) => Err(other),
            Ok(value) => Acl::decode(&value)
                .map(Some)
                .ok_or_else(|| self.bad_attributes(directory, "not an access control list")),
        }
    }

    /// Gives a new inode the lists that it inherits from its directory.
    pub(crate) fn inherit_list(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        default: &Acl,
        mode: u32,
    ) -> Outcome<()> {
        let mut all = Vec::new();
        let mut add = |name, list: &Acl| -> Result<(), Errno> {
            let (index, _) = xattr::split(name)?;
            let value = xattr::acl_to_disk(&list.encode()).ok_or(Errno::IO)?;
            all.push(Attribute { index, name: Vec::new(), value });
            Ok(())
        };
        let access = default.inherited(mode);
        if !access.is_mode() {
            add(acl::ACCESS, &access)?;
        }
        if inode.state().kind() == Kind::Directory {
            add(acl::DEFAULT, default)?;
        }
        if all.is_empty() {
            return Ok(());
        }
        let block = xattr::block(self.geometry.block_size, &mut all).ok_or(Errno::NOSPC)?;
        self.put_attributes(transaction, inode, Some(&block))
    }

    /// Sets or removes an inode's block of attributes. A block that other inodes share stays
    /// theirs.
    fn put_attributes(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        bytes: Option<&[u8]>,
    ) -> Outcome<()> {
        let old = inode.state().fields.acl_block;
        let own = old != 0 && self.cache.read(old, |bytes| get32(bytes, 4) <= 1)?;
        let new = match bytes {
            None => 0,
            Some(bytes) if own => {
                self.cache.put(old, Class::Data, bytes.into(), false);
                return Ok(());
            }
            Some(bytes) => {
                let group = self.geometry.group_of_inode(inode.number);
                let goal = self.geometry.groups[group].inode_table + self.geometry.table_blocks;
                let (block, _) = self.allocate_blocks(transaction, goal, 1)?;
                self.cache.put(block, Class::Data, bytes.into(), true);
                block
            }
        };
        if new != 0 {
            self.count_sectors(inode, 1)?;
            if self.allocator.superblock(|superblock| superblock.compat() & EXT_ATTR == 0) {
                self.allocator.change_superblock(|superblock| superblock.add_features(EXT_ATTR, 0));
            }
        }
        if old != 0 {
            self.drop_attributes(transaction, inode, old)?;
        }
        self.change_inode(inode, |state| state.fields.acl_block = new);
        Ok(())
    }

    /// Releases an inode's block of attributes.
    pub(crate) fn drop_attributes(
        &self,
        transaction: &Transaction<'_>,
        inode: &Arc<Inode>,
        block: u32,
    ) -> Outcome<()> {
        // A block with an invalid header is freed; e2fsck finds a possible other user.
        let shared = self
            .cache
            .read(block, |bytes| get32(bytes, 0) == xattr::MAGIC && get32(bytes, 4) > 1)?;
        if shared {
            // Written in the phase of the inodes, so that neither is on the disk long before the
            // other.
            self.cache.modify(block, Class::Indirect, |bytes| {
                let references = get32(bytes, 4);
                put32(bytes, 4, references - 1);
            })?;
        } else {
            let fresh = self.cache.forget(block);
            self.free_block(transaction, block, fresh);
        }
        let sectors = u32::try_from(self.geometry.block_size / 512).unwrap_or(0);
        self.change_inode(inode, |state| {
            state.fields.acl_block = 0;
            state.fields.sectors = state.fields.sectors.saturating_sub(sectors);
        });
        Ok(())
    }
}
