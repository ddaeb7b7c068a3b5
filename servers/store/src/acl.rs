//! POSIX access control lists, in the encoding of setxattr(2) (version 2).
//!
//! The client's kernel enforces lists (`FUSE_POSIX_ACL`). What remains for a store is how a list
//! and the mode of an inode depend on each other: acl(5), and fs/posix_acl.c of Linux.

/// Name of the list that decides about access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of a directory's list that new inodes in it inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// Tag, permissions, and user or group.
    entries: Vec<(u16, u16, u32)>,
}

/// Returns whether an extended attribute is an access control list.
#[must_use]
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

impl Acl {
    /// Decodes a list. `None` if it is invalid.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Acl> {
        let (head, rest) = value.split_first_chunk::<4>()?;
        let (entries, []) = rest.as_chunks::<8>() else { return None };
        let entries: Vec<(u16, u16, u32)> = entries
            .iter()
            .map(|&[t0, t1, p0, p1, id @ ..]| {
                (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]), u32::from_le_bytes(id))
            })
            .collect();
        let count = |tag: u16| entries.iter().filter(|entry| entry.0 == tag).count();
        let named = count(USER) + count(GROUP);
        let is_valid = u32::from_le_bytes(*head) == VERSION
            && [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1)
            && (count(MASK) == 1 || named == 0 && count(MASK) == 0)
            && named + count(MASK) + 3 == entries.len()
            && entries.iter().all(|entry| entry.1 <= 7);
        is_valid.then_some(Acl { entries })
    }

    /// Encodes the list.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in &self.entries {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// Tag of the entry that the group bits of the mode show.
    fn group_tag(&self) -> u16 {
        if self.is_mode() { GROUP_OBJ } else { MASK }
    }

    /// Returns whether the list allows what its mode alone allows.
    #[must_use]
    pub fn is_mode(&self) -> bool {
        self.entries.iter().all(|entry| entry.0 != MASK)
    }

    /// Returns the nine bits of the mode of an inode with this list.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let of = |tag: u16| {
            self.entries.iter().find(|entry| entry.0 == tag).map_or(0, |entry| u32::from(entry.1))
        };
        of(USER_OBJ) << 6 | of(self.group_tag()) << 3 | of(OTHER)
    }

    /// Sets the mode, as chmod(2) does for an inode with this list.
    pub fn set_mode(&mut self, mode: u32) {
        let group = self.group_tag();
        for (tag, permissions, _) in &mut self.entries {
            let shift = match *tag {
                USER_OBJ => 6,
                OTHER => 0,
                tag if tag == group => 3,
                _ => continue,
            };
            *permissions = u16::try_from(mode >> shift & 7).unwrap_or(0);
        }
    }

    /// Returns the list of an inode that is created with `mode` where this list is the default.
    #[must_use]
    pub fn inherited(&self, mode: u32) -> Acl {
        let mut list = self.clone();
        list.set_mode(self.mode() & mode);
        list
    }
}

/// Returns the twelve bits of the mode of a new inode. A default list replaces the caller's umask.
#[must_use]
pub fn mode_of_new(default: Option<&Acl>, mode: u32, umask: u32) -> u32 {
    match default {
        None => mode & !umask,
        Some(list) => mode & 0o7000 | list.mode() & mode,
    }
}

#[cfg(test)]
mod tests;
