//! Entries of directories.

use kumihimo_store::Kind;

use super::{get16, get32, put16, put32};

/// The longest name.
pub const LONGEST: usize = 255;

/// Bytes of an entry without its name.
pub const HEAD: usize = 8;

/// An entry of a directory's block.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The inode; 0: none, the space is free.
    pub number: u32,
    /// Where in the block it begins.
    pub at: usize,
    /// How far it is to the next one.
    pub length: usize,
    /// What it says the inode is: 1 to 7, or 0.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// What of it is in use.
    pub fn used(&self) -> usize {
        if self.number == 0 { 0 } else { needed(self.name.len()) }
    }
}

/// Bytes that an entry with a name of so many bytes needs.
pub fn needed(name: usize) -> usize {
    (HEAD + name).next_multiple_of(4)
}

/// `file_type` of an entry.
pub fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::CharDevice => 3,
        Kind::BlockDevice => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Symlink => 7,
    }
}

/// The kind that a `file_type` says.
pub fn kind_of(file_type: u8) -> Option<Kind> {
    Some(match file_type {
        1 => Kind::File,
        2 => Kind::Directory,
        3 => Kind::CharDevice,
        4 => Kind::BlockDevice,
        5 => Kind::Fifo,
        6 => Kind::Socket,
        7 => Kind::Symlink,
        _ => return None,
    })
}

/// The entries of a directory's block, each checked; the first that is not right ends them with
/// what is wrong.
pub struct Entries<'a> {
    block: &'a [u8],
    at: usize,
    inodes: u32,
}

/// Goes through a block; inodes are numbered up to `inodes`.
pub fn entries(block: &[u8], inodes: u32) -> Entries<'_> {
    Entries { block, at: 0, inodes }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let (block, at) = (self.block, self.at);
        if at >= block.len() {
            return None;
        }
        // After an error there is no next one to be found.
        self.at = block.len();
        if block.len() - at < HEAD {
            return Some(Err("an entry is cut off"));
        }
        let (number, length) = (get32(block, at), usize::from(get16(block, at + 4)));
        let (name, kind) = (usize::from(block[at + 6]), block[at + 7]);
        if length < HEAD || length % 4 != 0 {
            return Some(Err("an entry has an impossible length"));
        }
        if length > block.len() - at {
            return Some(Err("an entry goes beyond its block"));
        }
        if number != 0 && (name == 0 || HEAD + name > length) {
            return Some(Err("a name does not fit into its entry"));
        }
        if number > self.inodes {
            return Some(Err("an entry leads to an inode that cannot be"));
        }
        self.at = at + length;
        let name = if number == 0 { &[][..] } else { &block[at + HEAD..at + HEAD + name] };
        if number != 0 && name.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Some(Err("a name has a slash or a zero byte in it"));
        }
        Some(Ok(Entry { number, at, length, kind, name }))
    }
}

/// Puts an entry.
pub fn put(block: &mut [u8], at: usize, length: usize, number: u32, kind: u8, name: &[u8]) {
    #![allow(
        clippy::cast_possible_truncation,
        reason = "a block has 4096 bytes at most, a name 255"
    )]
    put32(block, at, number);
    put16(block, at + 4, length as u16);
    block[at + 6] = name.len() as u8;
    block[at + 7] = kind;
    block[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
    let end = needed(name.len()).min(length);
    block[at + HEAD + name.len()..at + end].fill(0);
}

/// Changes an entry's length.
pub fn set_length(block: &mut [u8], at: usize, length: usize) {
    #![allow(clippy::cast_possible_truncation, reason = "a block has 4096 bytes at most")]
    put16(block, at + 4, length as u16);
}

/// Changes where an entry leads.
pub fn set_target(block: &mut [u8], at: usize, number: u32, kind: u8) {
    put32(block, at, number);
    block[at + 7] = kind;
}
