//! Layout of a valid image, parsed independently of the store. The parser trusts the image and
//! panics if the image is invalid.

/// An image's layout.
#[derive(Debug)]
pub struct Layout {
    /// Size of a block in bytes.
    pub block: usize,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Position of the group descriptors in bytes.
    pub groups: usize,
    /// Number of groups.
    pub group_count: usize,
    /// Size of an inode in bytes.
    pub inode_size: usize,
    per_group: u32,
    tables: Vec<usize>,
    /// Blocks of the bitmaps.
    pub bitmaps: Vec<u32>,
    /// Inodes in use, each with its blocks.
    pub used: Vec<Used>,
}

/// An inode in use.
#[derive(Debug)]
pub struct Used {
    /// Inode number.
    pub number: u32,
    /// Position in bytes.
    pub at: usize,
    /// File mode.
    pub mode: u16,
    /// Data blocks.
    pub data: Vec<u32>,
    /// Indirect blocks.
    pub indirect: Vec<u32>,
    /// Block of xattrs.
    pub xattrs: Option<u32>,
}

/// Position of the superblock in bytes.
pub const SUPERBLOCK: usize = 1024;

/// A little-endian number of four bytes.
#[must_use]
pub fn word(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"))
}

fn half(image: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(image[at..at + 2].try_into().expect("two bytes"))
}

impl Used {
    /// Returns whether the inode is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

impl Layout {
    /// Parses a valid image.
    ///
    /// # Panics
    /// If the image is invalid.
    #[must_use]
    pub fn of(image: &[u8]) -> Layout {
        let superblock = |at: usize| word(image, SUPERBLOCK + at);
        assert_eq!(half(image, SUPERBLOCK + 56), 0xef53, "an ext2 image");
        let block = 1024usize << superblock(24);
        let (first, blocks) = (superblock(20), superblock(4));
        let group_count = (blocks - first).div_ceil(superblock(32)) as usize;
        let groups = (first as usize + 1) * block;
        let group = |number: usize, at: usize| word(image, groups + number * 32 + at);
        let mut layout = Layout {
            block,
            blocks,
            inodes: superblock(0),
            groups,
            group_count,
            inode_size: usize::from(half(image, SUPERBLOCK + 88)),
            per_group: superblock(40),
            tables: (0..group_count).map(|number| group(number, 8) as usize * block).collect(),
            bitmaps: (0..group_count)
                .flat_map(|number| [group(number, 0), group(number, 4)])
                .collect(),
            used: Vec::new(),
        };
        layout.used = (1..=layout.inodes).filter_map(|number| layout.used(image, number)).collect();
        layout
    }

    /// Position of an inode in bytes.
    #[must_use]
    pub fn inode(&self, number: u32) -> usize {
        let (group, index) = ((number - 1) / self.per_group, (number - 1) % self.per_group);
        self.tables[group as usize] + index as usize * self.inode_size
    }

    fn used(&self, image: &[u8], number: u32) -> Option<Used> {
        let at = self.inode(number);
        let mode = half(image, at);
        if mode == 0 || half(image, at + 26) == 0 {
            return None;
        }
        let xattrs = Some(word(image, at + 104)).filter(|block| *block != 0);
        let mut used = Used { number, at, mode, data: Vec::new(), indirect: Vec::new(), xattrs };
        // In devices and short symbolic links, these fields contain no block numbers.
        let sectors = word(image, at + 28) as usize / (self.block / 512);
        if sectors > usize::from(xattrs.is_some()) && matches!(mode >> 12, 0o10 | 0o4 | 0o12) {
            for slot in 0..15 {
                self.blocks(
                    image,
                    word(image, at + 40 + slot * 4),
                    slot.saturating_sub(11),
                    &mut used,
                );
            }
        }
        Some(used)
    }

    fn blocks(&self, image: &[u8], block: u32, depth: usize, used: &mut Used) {
        if block == 0 {
            return;
        }
        if depth == 0 {
            used.data.push(block);
            return;
        }
        used.indirect.push(block);
        for slot in 0..self.block / 4 {
            self.blocks(
                image,
                word(image, block as usize * self.block + slot * 4),
                depth - 1,
                used,
            );
        }
    }
}
