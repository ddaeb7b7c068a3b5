//! Sparse images with structures that are written by hand: large by their numbers, small on the
//! disk.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::layout::SUPERBLOCK;
use crate::images::{self, Scratch};

/// First block that the builder uses: after the structures of the first group.
const FIRST: u32 = 3000;
/// First inode that `mke2fs` leaves unused, after lost+found.
const FIRST_INODE: u32 = 12;

/// An image under construction, with blocks of 1,024 bytes. Blocks come from the first group. Their
/// bitmap is not updated, because it plays no part in reading.
#[derive(Debug)]
pub struct Crafted {
    scratch: Scratch,
    file: File,
    table: u64,
    next_block: u32,
    next_inode: u32,
}

/// Type and permissions of crafted inodes.
pub const DIRECTORY: u16 = 0o040_755;
/// As [`DIRECTORY`].
pub const FILE: u16 = 0o100_644;

impl Crafted {
    /// Size of a block in bytes.
    pub const BLOCK: usize = 1024;
    /// Number of block numbers in an indirect block.
    pub const POINTERS: usize = Crafted::BLOCK / 4;

    /// Makes an image of `size` bytes with `inodes` inodes.
    ///
    /// # Panics
    /// If `mke2fs` or an access of the image fails.
    #[must_use]
    pub fn new(size: u64, inodes: u32) -> Crafted {
        let inodes = inodes.to_string();
        let arguments = ["-b", "1024", "-I", "128", "-N", &inodes, "-O", "^resize_inode"];
        let scratch = images::make_sparse(size, &arguments);
        let file = File::options().read(true).write(true).open(scratch.path()).expect("the image");
        let mut place = [0; 4];
        file.read_exact_at(&mut place, 2 * SUPERBLOCK as u64 + 8).expect("a descriptor");
        let table = u64::from(u32::from_le_bytes(place)) * Crafted::BLOCK as u64;
        Crafted { scratch, file, table, next_block: FIRST, next_inode: FIRST_INODE }
    }

    /// Path of the image.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Number of bytes that the image occupies.
    ///
    /// # Panics
    /// If the image was removed.
    #[must_use]
    pub fn real_bytes(&self) -> u64 {
        self.file.metadata().expect("the image").blocks() * 512
    }

    /// Number of the block that the next call of [`Crafted::block`] writes.
    #[must_use]
    pub fn next_block(&self) -> u32 {
        self.next_block
    }

    /// Writes bytes at a position.
    ///
    /// # Panics
    /// If the write fails.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).expect("the image");
    }

    /// Writes an unused block and returns its number.
    pub fn block(&mut self, bytes: &[u8]) -> u32 {
        let number = self.next_block;
        self.next_block += 1;
        self.put(u64::from(number) * Crafted::BLOCK as u64, bytes);
        number
    }

    /// Writes a block of block numbers.
    pub fn pointers(&mut self, numbers: impl IntoIterator<Item = u32>) -> u32 {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        assert!(bytes.len() <= Crafted::BLOCK, "too many block numbers");
        self.block(&bytes)
    }

    /// Writes a chain of indirect blocks of `levels` levels whose numbers are all the same: the
    /// whole tree ends in the one block `leaf`.
    pub fn funnel(&mut self, leaf: u32, levels: usize) -> u32 {
        (0..levels).fold(leaf, |at, _| self.pointers([at; Crafted::POINTERS]))
    }

    /// Writes an unused inode and returns its number.
    ///
    /// # Panics
    /// If the write fails.
    pub fn inode(&mut self, mode: u16, size: u64, blocks: [u32; 15]) -> u32 {
        let number = self.next_inode;
        self.next_inode += 1;
        let mut raw = [0; 128];
        raw[..2].copy_from_slice(&mode.to_le_bytes());
        raw[4..8].copy_from_slice(&size.to_le_bytes()[..4]);
        if mode == FILE {
            raw[108..112].copy_from_slice(&size.to_le_bytes()[4..]);
        }
        raw[26..28].copy_from_slice(&2u16.to_le_bytes());
        raw[28..32].copy_from_slice(&1000u32.to_le_bytes());
        for (slot, block) in raw[40..100].chunks_mut(4).zip(blocks) {
            slot.copy_from_slice(&block.to_le_bytes());
        }
        self.put(self.inode_at(number), &raw);
        number
    }

    /// Position of an inode of the first group.
    #[must_use]
    pub fn inode_at(&self, number: u32) -> u64 {
        self.table + u64::from(number - 1) * 128
    }

    /// Returns a directory block with these names. The last entry takes the rest of the block.
    ///
    /// # Panics
    /// If the names do not fit.
    #[must_use]
    pub fn entries(names: &[(u32, &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        for (index, (number, name)) in names.iter().enumerate() {
            let mut length = (8 + name.len()).next_multiple_of(4);
            if index + 1 == names.len() {
                length = Crafted::BLOCK - block.len();
            }
            let end = block.len() + length;
            block.extend(number.to_le_bytes());
            block.extend(u16::try_from(length).expect("a block").to_le_bytes());
            block.extend([u8::try_from(name.len()).expect("a name"), 0]);
            block.extend(*name);
            block.resize(end, 0);
        }
        assert_eq!(block.len(), Crafted::BLOCK, "the names of one block");
        block
    }

    /// Replaces the names of the root.
    pub fn root(&mut self, names: &[(u32, &[u8])]) {
        let all = [&[(2, b".".as_slice()), (2, b"..")], names].concat();
        let block = self.block(&Crafted::entries(&all));
        self.put(self.inode_at(2) + 40, &block.to_le_bytes());
    }
}

/// Block numbers of an inode: `direct` from the first on, then the three indirect blocks.
#[must_use]
pub fn map(direct: &[u32], indirect: [u32; 3]) -> [u32; 15] {
    let mut blocks = [0; 15];
    blocks[..direct.len()].copy_from_slice(direct);
    blocks[12..].copy_from_slice(&indirect);
    blocks
}
