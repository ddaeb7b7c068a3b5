//! Group descriptors, and the layout of block groups.

use super::{get16, get32, put16};

/// Size of a group descriptor.
pub const DESCRIPTOR: usize = 32;

/// Blocks of a group's structures.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Block of the block bitmap.
    pub block_bitmap: u32,
    /// Block of the inode bitmap.
    pub inode_bitmap: u32,
    /// First block of the inode table.
    pub inode_table: u32,
}

/// Counts in a group descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Free blocks.
    pub free_blocks: u16,
    /// Free inodes.
    pub free_inodes: u16,
    /// Directories.
    pub directories: u16,
}

/// Reads the descriptor at the start of `bytes`.
pub fn read(bytes: &[u8]) -> (Places, Counts) {
    (
        Places {
            block_bitmap: get32(bytes, 0),
            inode_bitmap: get32(bytes, 4),
            inode_table: get32(bytes, 8),
        },
        Counts {
            free_blocks: get16(bytes, 12),
            free_inodes: get16(bytes, 14),
            directories: get16(bytes, 16),
        },
    )
}

/// Writes the counts into a descriptor.
pub fn put_counts(bytes: &mut [u8], counts: Counts) {
    put16(bytes, 12, counts.free_blocks);
    put16(bytes, 14, counts.free_inodes);
    put16(bytes, 16, counts.directories);
}

/// Layout of the disk. All fields were checked at open.
#[derive(Debug)]
pub struct Geometry {
    /// Size of a block in bytes: 1024, 2048 or 4096.
    pub block_size: usize,
    /// Number of blocks of the disk.
    pub blocks: u32,
    /// First block of group 0: 1 with blocks of 1024 bytes, otherwise 0.
    pub first_data_block: u32,
    /// Number of blocks of a group.
    pub blocks_per_group: u32,
    /// Number of inodes of a group.
    pub inodes_per_group: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Size of an inode in bytes.
    pub inode_size: usize,
    /// First inode that is not reserved.
    pub first_inode: u32,
    /// Number of blocks of an inode table.
    pub table_blocks: u32,
    /// Number of blocks of superblock, group descriptors and reserved descriptors, in groups that
    /// have copies of them.
    pub head_blocks: u32,
    /// Whether only some groups have copies of the superblock.
    pub sparse: bool,
    /// Structures of each group.
    pub groups: Vec<Places>,
}

impl Geometry {
    /// Returns the group of a valid block.
    pub fn group_of(&self, block: u32) -> usize {
        ((block - self.first_data_block) / self.blocks_per_group) as usize
    }

    /// Returns the first block of a group.
    pub fn group_start(&self, group: usize) -> u32 {
        self.first_data_block + u32::try_from(group).unwrap_or(u32::MAX) * self.blocks_per_group
    }

    /// Returns the number of blocks of a group, which may be smaller for the last group.
    pub fn group_blocks(&self, group: usize) -> u32 {
        (self.blocks - self.group_start(group)).min(self.blocks_per_group)
    }

    /// Returns whether a group starts with a copy of the superblock: ext2.rst, "sparse_super".
    pub fn has_head(&self, group: usize) -> bool {
        let power = |of: usize| {
            let mut value = of;
            while value < group {
                value *= of;
            }
            value == group
        };
        !self.sparse || group <= 1 || power(3) || power(5) || power(7)
    }

    /// Returns whether a file may own this block: it is on the disk and belongs to none of the
    /// structures above.
    pub fn is_for_files(&self, block: u32) -> bool {
        if block < self.first_data_block || block >= self.blocks {
            return false;
        }
        let group = self.group_of(block);
        let places = &self.groups[group];
        let head = if self.has_head(group) { self.head_blocks } else { 0 };
        block - self.group_start(group) >= head
            && block != places.block_bitmap
            && block != places.inode_bitmap
            && block.wrapping_sub(places.inode_table) >= self.table_blocks
    }

    /// Returns whether the number of an inode is valid.
    pub fn is_inode(&self, number: u32) -> bool {
        number == 2 || (number >= self.first_inode && number <= self.inodes)
    }

    /// Returns the group of an inode.
    pub fn group_of_inode(&self, number: u32) -> usize {
        ((number - 1) / self.inodes_per_group) as usize
    }

    /// Returns the block of an inode and its offset in the block.
    pub fn inode_place(&self, number: u32) -> (u32, usize) {
        let index = ((number - 1) % self.inodes_per_group) as usize;
        let byte = index * self.inode_size;
        let table = self.groups[self.group_of_inode(number)].inode_table;
        (table + u32::try_from(byte / self.block_size).unwrap_or(0), byte % self.block_size)
    }

    /// Returns the number of block numbers in an indirect block.
    pub fn pointers(&self) -> usize {
        self.block_size / 4
    }

    /// Returns the maximum size of a file in bytes. Limited by three levels of indirect blocks, and
    /// by `i_blocks`, which counts units of 512 bytes, indirect blocks included (`ext2_max_size` of
    /// fs/ext2/super.c).
    pub fn largest_file(&self) -> u64 {
        let (size, pointers) = (self.block_size as u64, self.pointers() as u64);
        let reached = 12 + pointers + pointers * pointers + pointers * pointers * pointers;
        let countable = u64::from(u32::MAX) / (size / 512);
        let leaves = countable.saturating_sub(12).div_ceil(pointers);
        let indirect = leaves + leaves.div_ceil(pointers) + leaves.div_ceil(pointers * pointers);
        reached.min(countable - indirect - 2) * size
    }
}
