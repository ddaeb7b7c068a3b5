//! Directory entries.
//!
//! A disk writes a sector of a block as a whole, and perhaps not the others. So a name is put where
//! it changes one sector: what this crate writes does not cross a sector's end, and blocks that it
//! creates have a first entry in each sector. Entries of others may span sectors (mke2fs makes one
//! for the rest of a block); of these, only the room in their first sector is used.

use kumihimo_store::Kind;

use super::{get16, get32, put16, put32};

/// Maximum length of a name.
pub const LONGEST: usize = 255;

/// Number of bytes that every disk writes atomically.
pub const SECTOR: usize = 512;

/// Size of an entry without its name.
pub const HEAD: usize = 8;

/// Entry of a directory block.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Number of the inode; 0 for free space.
    pub number: u32,
    /// Offset of the entry in the block.
    pub at: usize,
    /// Distance to the next entry.
    pub length: usize,
    /// File type stored in the entry: 1 to 7, or 0 if unknown.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Returns the number of bytes in use.
    pub fn used(&self) -> usize {
        if self.number == 0 { 0 } else { needed(self.name.len()) }
    }

    /// Returns the number of bytes for another name behind this one, in the same sector.
    pub fn room(&self) -> usize {
        let end = (self.at + self.length).min((self.at / SECTOR + 1) * SECTOR);
        end.saturating_sub(self.at + self.used())
    }
}

/// Returns the size of an entry with a name of `name` bytes.
pub fn needed(name: usize) -> usize {
    (HEAD + name).next_multiple_of(4)
}

/// Returns the `file_type` of an entry.
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

/// Returns the kind for a `file_type`.
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

/// Iterator over the entries of a directory block, with a check of each. The first invalid entry
/// ends it with an error.
pub struct Entries<'a> {
    block: &'a [u8],
    at: usize,
    inodes: u32,
}

/// Iterates over a block; `inodes` is the highest valid inode number.
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
        // After an error, the position of the next entry is unknown.
        self.at = block.len();
        if block.len() - at < HEAD {
            return Some(Err("an entry is truncated"));
        }
        let (number, length) = (get32(block, at), usize::from(get16(block, at + 4)));
        let (name, kind) = (usize::from(block[at + 6]), block[at + 7]);
        if length < HEAD || length % 4 != 0 {
            return Some(Err("an entry has an invalid length"));
        }
        if length > block.len() - at {
            return Some(Err("an entry extends beyond its block"));
        }
        if number != 0 && (name == 0 || HEAD + name > length) {
            return Some(Err("a name is larger than its entry"));
        }
        if number > self.inodes {
            return Some(Err("an entry leads to an invalid inode number"));
        }
        self.at = at + length;
        let name = if number == 0 { &[][..] } else { &block[at + HEAD..at + HEAD + name] };
        if number != 0 && name.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Some(Err("a name contains a slash or a zero byte"));
        }
        Some(Ok(Entry { number, at, length, kind, name }))
    }
}

/// Writes an entry.
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

/// Writes free entries from `at`, the beginning of a sector, to the end of the block.
pub fn free_sectors(block: &mut [u8], at: usize) {
    for sector in block[at..].chunks_mut(SECTOR) {
        put32(sector, 0, 0);
        set_length(sector, 0, sector.len());
    }
}

/// Sets the length of an entry.
pub fn set_length(block: &mut [u8], at: usize, length: usize) {
    #![allow(clippy::cast_possible_truncation, reason = "a block has 4096 bytes at most")]
    put16(block, at + 4, length as u16);
}

/// Sets the inode and file type of an entry.
pub fn set_target(block: &mut [u8], at: usize, number: u32, kind: u8) {
    put32(block, at, number);
    block[at + 7] = kind;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_of(spans: &[(usize, usize, &[u8])]) -> Vec<u8> {
        let mut block = vec![0; 2 * SECTOR];
        for &(at, length, name) in spans {
            put(&mut block, at, length, u32::from(!name.is_empty()), 1, name);
        }
        block
    }

    fn rooms(block: &[u8]) -> Vec<usize> {
        entries(block, 1).map(|entry| entry.expect("a valid entry").room()).collect()
    }

    #[test]
    fn room_ends_with_the_sector_of_its_entry() {
        let name = [b'a'; 100];
        // As mke2fs writes it: an entry for the rest of the block.
        assert_eq!(rooms(&block_of(&[(0, 2 * SECTOR, &name)])), [SECTOR - 108]);
        assert_eq!(rooms(&block_of(&[(0, 2 * SECTOR, b"")])), [SECTOR]);
        // One that crosses the end of the sector, and one that begins in the second.
        let crosses = [(0, 444, &name[..]), (444, 2 * SECTOR - 444, &name[..])];
        assert_eq!(rooms(&block_of(&crosses)), [444 - 108, 0]);
        let second = [(0, SECTOR, &name[..]), (SECTOR, SECTOR, &name[..])];
        assert_eq!(rooms(&block_of(&second)), [SECTOR - 108; 2]);
    }

    #[test]
    fn free_sectors_have_an_entry_each() {
        let mut block = block_of(&[(0, SECTOR, b"a")]);
        block[SECTOR..].fill(7);
        free_sectors(&mut block, SECTOR);
        let all: Vec<_> = entries(&block, 1).map(|entry| entry.expect("a valid entry")).collect();
        let seen: Vec<_> = all.iter().map(|entry| (entry.at, entry.length, entry.number)).collect();
        assert_eq!(seen, [(0, SECTOR, 1), (SECTOR, SECTOR, 0)]);
    }
}
