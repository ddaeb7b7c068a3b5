//! Extended attributes as stored on the disk: fs/ext2/xattr.h and xattr.c of Linux.

use kumihimo_store::Errno;

use super::{get16, get32, put16, put32};

/// Magic number of a block of attributes, and of attributes inside an inode.
pub const MAGIC: u32 = 0xEA02_0000;
/// Size of the header of a block of attributes.
pub const HEAD: usize = 32;
/// Size of an entry without its name.
const ENTRY: usize = 16;

/// Extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Number of the namespace.
    pub index: u8,
    /// Name without the namespace.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Supported namespaces. Of `system.`, only access control lists are supported.
const NAMESPACES: [(u8, &[u8]); 3] = [(1, b"user."), (4, b"trusted."), (6, b"security.")];
/// Namespaces that consist of a single name.
const ACLS: [(u8, &[u8]); 2] = [(2, b"system.posix_acl_access"), (3, b"system.posix_acl_default")];

/// Splits a full name into namespace and rest. `EOPNOTSUPP` if the namespace is unknown, and
/// `EINVAL` if the rest is empty.
pub fn split(name: &[u8]) -> Result<(u8, &[u8]), Errno> {
    if let Some((index, _)) = ACLS.iter().find(|(_, whole)| *whole == name) {
        return Ok((*index, b""));
    }
    let found =
        NAMESPACES.iter().find_map(|(index, prefix)| Some((*index, name.strip_prefix(*prefix)?)));
    match found {
        None => Err(Errno::OPNOTSUPP),
        Some((_, b"")) => Err(Errno::INVAL),
        Some(found) => Ok(found),
    }
}

/// Returns the full name, if the namespace is known.
pub fn join(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    if let Some((_, whole)) = ACLS.iter().find(|(of, _)| *of == index) {
        return Some(whole.to_vec());
    }
    NAMESPACES.iter().find(|(of, _)| *of == index).map(|(_, prefix)| [*prefix, rest].concat())
}

/// Returns whether the value is an access control list, which has another encoding on the disk.
pub fn is_acl(index: u8) -> bool {
    index == 2 || index == 3
}

/// Reads entries from `first` on. The offsets of their values count from `origin`.
pub fn read(bytes: &[u8], first: usize, origin: usize) -> Result<Vec<Attribute>, &'static str> {
    let (mut all, mut at, mut total) = (Vec::new(), first, 0);
    loop {
        if at + 4 > bytes.len() {
            return Err("the list of attributes has no end");
        }
        if get32(bytes, at) == 0 {
            return Ok(all);
        }
        if at + ENTRY > bytes.len() {
            return Err("an attribute is truncated");
        }
        let length = usize::from(bytes[at]);
        let (offset, size) = (usize::from(get16(bytes, at + 2)), get32(bytes, at + 8) as usize);
        if get32(bytes, at + 4) != 0 {
            return Err("an attribute's value is in another block or inode");
        }
        let name =
            bytes.get(at + ENTRY..at + ENTRY + length).ok_or("an attribute's name is truncated")?;
        let value =
            bytes.get(origin..).and_then(|from| from.get(offset..offset.checked_add(size)?));
        let value = value.ok_or("an attribute's value is out of bounds")?;
        // Values that share bytes would take more memory than the block.
        total += size;
        if total > bytes.len() {
            return Err("the values of attributes overlap");
        }
        all.push(Attribute { index: bytes[at + 1], name: name.to_vec(), value: value.to_vec() });
        at += (ENTRY + length).next_multiple_of(4);
    }
}

/// Writes attributes as entries from `first` on, with their values at the end of `bytes`, which
/// must be zero. Returns the hash of all entries, or `None` if they do not fit.
pub fn write(bytes: &mut [u8], first: usize, origin: usize, all: &mut [Attribute]) -> Option<u32> {
    all.sort_by(|a, b| (a.index, a.name.len(), &a.name).cmp(&(b.index, b.name.len(), &b.name)));
    let (mut at, mut end, mut hash) = (first, bytes.len(), 0_u32);
    for attribute in all.iter() {
        let room = attribute.value.len().next_multiple_of(4);
        let next = at + (ENTRY + attribute.name.len()).next_multiple_of(4);
        if next + 4 + room > end {
            return None;
        }
        end -= room;
        bytes[at] = u8::try_from(attribute.name.len()).ok()?;
        bytes[at + 1] = attribute.index;
        put16(bytes, at + 2, if room == 0 { 0 } else { u16::try_from(end - origin).ok()? });
        put32(bytes, at + 8, u32::try_from(attribute.value.len()).ok()?);
        let own = entry_hash(attribute);
        put32(bytes, at + 12, own);
        bytes[at + ENTRY..at + ENTRY + attribute.name.len()].copy_from_slice(&attribute.name);
        bytes[end..end + attribute.value.len()].copy_from_slice(&attribute.value);
        hash = hash.rotate_left(16) ^ own;
        at = next;
    }
    Some(hash)
}

/// Returns a block with the attributes `all`, for one inode.
pub fn block(size: usize, all: &mut [Attribute]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; size];
    let hash = write(&mut bytes, HEAD, 0, all)?;
    put32(&mut bytes, 0, MAGIC);
    put32(&mut bytes, 4, 1);
    put32(&mut bytes, 8, 1);
    put32(&mut bytes, 12, hash);
    Some(bytes)
}

fn entry_hash(attribute: &Attribute) -> u32 {
    let name =
        attribute.name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
    attribute.value.chunks(4).fold(name, |hash, word| {
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        hash.rotate_left(16) ^ u32::from_le_bytes(padded)
    })
}

/// Returns whether entries with this tag of an access control list contain a user or group id.
fn names_someone(tag: u16) -> bool {
    tag == 2 || tag == 8
}

/// Converts an access control list from the encoding of setxattr(2) (version 2) to that of the disk
/// (version 1): fs/ext2/acl.c.
pub fn acl_to_disk(value: &[u8]) -> Option<Vec<u8>> {
    let (head, entries) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*head) != 2 || entries.len() % 8 != 0 {
        return None;
    }
    let mut disk = 1_u32.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(8) {
        disk.extend_from_slice(if names_someone(get16(entry, 0)) { entry } else { &entry[..4] });
    }
    Some(disk)
}

/// Converts an access control list from the encoding of the disk to that of getxattr(2).
pub fn acl_from_disk(disk: &[u8]) -> Option<Vec<u8>> {
    let (head, mut rest) = disk.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*head) != 1 {
        return None;
    }
    let mut value = 2_u32.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let length =
            if names_someone(u16::from_le_bytes([rest[0], *rest.get(1)?])) { 8 } else { 4 };
        value.extend_from_slice(rest.get(..length)?);
        if length == 4 {
            value.extend_from_slice(&u32::MAX.to_le_bytes());
        }
        rest = &rest[length..];
    }
    Some(value)
}
