//! Damages images: bits, bytes, fields, and cyclic structures.

use kumihimo_tests::Random;

use super::layout::{Layout, SUPERBLOCK, word};

/// Fields of the superblock: offset and length in bytes.
const SUPER: [(usize, usize); 26] = [
    (0, 4),   // inodes
    (4, 4),   // blocks
    (8, 4),   // reserved blocks
    (12, 4),  // free blocks
    (16, 4),  // free inodes
    (20, 4),  // first data block
    (24, 4),  // size of a block
    (28, 4),  // size of a fragment
    (32, 4),  // blocks per group
    (36, 4),  // fragments per group
    (40, 4),  // inodes per group
    (56, 2),  // magic
    (58, 2),  // state
    (60, 2),  // behaviour on errors
    (76, 4),  // revision
    (84, 4),  // first inode
    (88, 2),  // size of an inode
    (90, 2),  // group of this copy
    (92, 4),  // compatible features
    (96, 4),  // incompatible features
    (100, 4), // read-only compatible features
    (206, 2), // reserved blocks of group descriptors
    (252, 1), // hash
    (254, 2), // size of a group descriptor
    (260, 4), // first meta block group
    (348, 2), // extra bytes of an inode
];
const GROUP: [(usize, usize); 7] = [(0, 4), (4, 4), (8, 4), (12, 2), (14, 2), (16, 2), (18, 2)];
/// Fields of an inode: mode, owner, size, times, links, blocks, flags; generation, xattrs, upper
/// half of the size; extra size and the fields after it.
const INODE: [(usize, usize); 15] = [
    (0, 2),
    (2, 2),
    (4, 4),
    (8, 4),
    (20, 4),
    (26, 2),
    (28, 4),
    (32, 4),
    (36, 4),
    (100, 4),
    (104, 4),
    (108, 4),
    (112, 4),
    (128, 2),
    (160, 4),
];

/// Damages a valid image. Returns a description for the report.
#[must_use]
pub fn damage(image: &mut Vec<u8>, layout: &Layout, random: &mut Random) -> String {
    let mut wound = Wound { image, layout, random, said: Vec::new(), end: None };
    for _ in 0..=wound.random.below(3) {
        wound.one();
    }
    let (said, end) = (wound.said.join(", "), wound.end);
    // Truncation comes last, because the other kinds of damage need the whole image.
    image.truncate(end.unwrap_or(image.len()));
    said
}

struct Wound<'a> {
    image: &'a mut Vec<u8>,
    layout: &'a Layout,
    random: &'a mut Random,
    said: Vec<String>,
    /// Length to which the image is truncated.
    end: Option<usize>,
}

fn place(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound.max(1) as u64)).expect("small")
}

impl Wound<'_> {
    fn one(&mut self) {
        match self.random.below(16) {
            0 => self.bits(),
            1 | 2 => self.bytes(),
            3 => {
                let (at, bytes) = SUPER[place(self.random, SUPER.len())];
                self.field("superblock", SUPERBLOCK + at, bytes);
            }
            4 => {
                let (group, (at, bytes)) = (
                    place(self.random, self.layout.group_count),
                    GROUP[place(self.random, GROUP.len())],
                );
                self.field("group descriptor", self.layout.groups + group * 32 + at, bytes);
            }
            5 | 6 => {
                let (used, (at, bytes)) = (
                    place(self.random, self.layout.used.len()),
                    INODE[place(self.random, INODE.len())],
                );
                // The last fields exist in large inodes only.
                if at + bytes <= self.layout.inode_size {
                    self.field("inode", self.layout.used[used].at + at, bytes);
                }
            }
            7 => {
                let used = place(self.random, self.layout.used.len());
                let slot = place(self.random, 15);
                self.field("block number", self.layout.used[used].at + 40 + slot * 4, 4);
            }
            8 => self.indirect(),
            9 | 10 => self.directory(),
            11 => self.index(),
            12 => self.xattrs(),
            13 => self.bitmap(),
            14 => self.circle(),
            _ => self.whole(),
        }
    }

    fn put(&mut self, what: &str, at: usize, value: u64, bytes: usize) {
        if at + bytes <= self.image.len() {
            self.said.push(format!("{what}: {value:#x} at {at} ({bytes} bytes)"));
            self.image[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
    }

    fn field(&mut self, what: &str, at: usize, bytes: usize) {
        if at + bytes <= self.image.len() {
            let mut old = [0; 8];
            old[..bytes].copy_from_slice(&self.image[at..at + bytes]);
            let value = self.value(u64::from_le_bytes(old));
            self.put(what, at, value, bytes);
        }
    }

    /// A value that is likely to cause errors: extremes, the correct value plus or minus a little,
    /// or numbers of other blocks and inodes.
    fn value(&mut self, old: u64) -> u64 {
        let layout = self.layout;
        match self.random.below(16) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX - 1,
            4 => 0x7fff_ffff_7fff_ffff,
            5 => 0x8000_0000_8000_0000,
            6 => old.wrapping_add(1),
            7 => old.wrapping_sub(1),
            8 => old ^ (1 << self.random.below(32)),
            9 => old << 1,
            10 => u64::from(layout.blocks) - u64::from(self.random.one_in(2)),
            11 => u64::from(layout.inodes) + u64::from(self.random.one_in(2)),
            12 => u64::from(self.some_block()),
            13 => u64::from(self.some_inode()),
            14 => self.random.below(256),
            _ => self.random.number(),
        }
    }

    fn some_block(&mut self) -> u32 {
        let used = &self.layout.used[place(self.random, self.layout.used.len())];
        match self.random.below(5) {
            0 => u32::try_from(self.layout.groups / self.layout.block).expect("small"),
            1 => self.layout.bitmaps[place(self.random, self.layout.bitmaps.len())],
            2 => u32::try_from(used.at / self.layout.block).expect("small"),
            3 if !used.indirect.is_empty() => used.indirect[0],
            _ if !used.data.is_empty() => used.data[place(self.random, used.data.len())],
            _ => u32::try_from(self.random.below(u64::from(self.layout.blocks))).expect("32 bits"),
        }
    }

    fn some_inode(&mut self) -> u32 {
        self.layout.used[place(self.random, self.layout.used.len())].number
    }

    fn bits(&mut self) {
        for _ in 0..=self.random.below(40) {
            let at = self.anywhere();
            self.image[at] ^= 1 << self.random.below(8);
        }
        self.said.push("bits".to_owned());
    }

    /// A random position, mostly in metadata, where most of the vulnerable structures are.
    fn anywhere(&mut self) -> usize {
        let block = match self.random.below(4) {
            0 => return place(self.random, self.image.len()),
            1 => return SUPERBLOCK + place(self.random, 400),
            _ => self.some_block() as usize,
        };
        (block * self.layout.block + place(self.random, self.layout.block))
            .min(self.image.len() - 1)
    }

    fn bytes(&mut self) {
        for _ in 0..=self.random.below(10) {
            let (at, byte) =
                (self.anywhere(), u8::try_from(self.random.below(256)).expect("below 256"));
            self.image[at] = byte;
        }
        self.said.push("bytes".to_owned());
    }

    /// A random block among those that `choose` selects from the used inodes.
    fn chosen(&mut self, choose: impl Fn(&super::layout::Used) -> Vec<u32>) -> Option<usize> {
        let blocks: Vec<u32> = self.layout.used.iter().flat_map(choose).collect();
        (!blocks.is_empty())
            .then(|| blocks[place(self.random, blocks.len())] as usize * self.layout.block)
    }

    /// Damages a block of block numbers: changes a number, or makes the block refer to itself.
    fn indirect(&mut self) {
        let Some(at) = self.chosen(|used| used.indirect.clone()) else { return };
        let slot = place(self.random, self.layout.block / 4);
        if self.random.one_in(3) {
            let own = (at / self.layout.block) as u64;
            for slot in 0..self.layout.block / 4 {
                self.image[at + slot * 4..at + slot * 4 + 4]
                    .copy_from_slice(&own.to_le_bytes()[..4]);
            }
            self.said.push(format!("the indirect block {own} refers to itself"));
        } else {
            self.field("indirect block", at + slot * 4, 4);
        }
    }

    /// Positions of the entries in a directory block.
    fn names(&self, at: usize) -> Vec<usize> {
        let (mut names, mut offset) = (Vec::new(), 0);
        while offset + 8 <= self.layout.block {
            names.push(at + offset);
            let length = usize::from(u16::from_le_bytes([
                self.image[at + offset + 4],
                self.image[at + offset + 5],
            ]));
            // The entry may already be damaged.
            if length < 8 {
                break;
            }
            offset += length;
        }
        names
    }

    fn directory(&mut self) {
        let Some(at) =
            self.chosen(|used| if used.is_directory() { used.data.clone() } else { Vec::new() })
        else {
            return;
        };
        let names = self.names(at);
        let name = names[place(self.random, names.len())];
        match self.random.below(7) {
            0 => {
                let inode = self.value(0);
                self.put("a name's inode", name, inode, 4);
            }
            1 => {
                let inode = u64::from(self.some_inode());
                self.put("a name's inode", name, inode, 4);
            }
            2 => {
                let lengths =
                    [0, 1, 4, 7, 8, 9, 11, 12, 13, 1023, 1024, 1025, 0x7fff, 0xfffc, 0xffff];
                let length = lengths[place(self.random, lengths.len())];
                self.put("an entry's length", name + 4, length, 2);
            }
            3 => {
                let lengths = [0, 1, 254, 255];
                let length = lengths[place(self.random, lengths.len())];
                self.put("a name's length", name + 6, length, 1);
            }
            4 => {
                let kind = self.random.below(256);
                self.put("a name's kind", name + 7, kind, 1);
            }
            5 => {
                let byte = if self.random.one_in(2) { u64::from(b'/') } else { 0 };
                self.put("a name's byte", name + 8, byte, 1);
            }
            _ => self.put("an empty directory block", at, 0, 8),
        }
    }

    /// Damages the index of a directory, or sets the index flag of a directory without one.
    fn index(&mut self) {
        let directories: Vec<usize> = (0..self.layout.used.len())
            .filter(|used| {
                self.layout.used[*used].is_directory() && !self.layout.used[*used].data.is_empty()
            })
            .collect();
        let used = &self.layout.used[directories[place(self.random, directories.len())]];
        let at = used.data[0] as usize * self.layout.block;
        let flags = word(self.image, used.at + 32) | 0x1000;
        self.put("the index flag", used.at + 32, u64::from(flags), 4);
        let fields = [
            (24, 4),
            (28, 1),
            (29, 1),
            (30, 1),
            (31, 1),
            (32, 2),
            (34, 2),
            (36, 4),
            (40, 4),
            (44, 4),
            (52, 4),
        ];
        for _ in 0..=self.random.below(2) {
            let (offset, bytes) = fields[place(self.random, fields.len())];
            self.field("a directory index", at + offset, bytes);
        }
    }

    fn xattrs(&mut self) {
        let Some(at) = self.chosen(|used| used.xattrs.into_iter().collect()) else { return };
        // The header and the first entries.
        let fields = [
            (0, 4),
            (4, 4),
            (8, 4),
            (32, 1),
            (33, 1),
            (34, 2),
            (36, 4),
            (40, 4),
            (48, 4),
            (52, 2),
            (56, 4),
        ];
        let (offset, bytes) = fields[place(self.random, fields.len())];
        self.field("xattrs", at + offset, bytes);
    }

    fn bitmap(&mut self) {
        let bitmap = self.layout.bitmaps[place(self.random, self.layout.bitmaps.len())] as usize
            * self.layout.block;
        let fill = [0, 0xff, 0x55][place(self.random, 3)];
        self.image[bitmap..bitmap + self.layout.block].fill(fill);
        self.said.push(format!("a bitmap full of {fill:#x}"));
    }

    /// Creates a cycle of directories, or two files that share blocks.
    fn circle(&mut self) {
        let directories: Vec<&super::layout::Used> = self
            .layout
            .used
            .iter()
            .filter(|used| used.is_directory() && !used.data.is_empty())
            .collect();
        let one = directories[place(self.random, directories.len())];
        let other = directories[place(self.random, directories.len())];
        let names = self.names(one.data[0] as usize * self.layout.block);
        match self.random.below(4) {
            // `..` is the second entry.
            0 => self.put(
                "the parent of a directory",
                names[names.len().min(2) - 1],
                u64::from(other.number),
                4,
            ),
            1 => self.put("itself", names[0], u64::from(other.number), 4),
            2 => {
                let name = names[names.len() - 1];
                self.put("an entry of a directory", name, u64::from(other.number), 4);
            }
            _ => {
                let (from, to) = (other.at + 40, one.at + 40);
                let blocks = self.image[from..from + 60].to_vec();
                self.image[to..to + 60].copy_from_slice(&blocks);
                self.said.push(format!(
                    "inodes {} and {} have the same blocks",
                    one.number, other.number
                ));
            }
        }
    }

    /// Damages a large part: truncates the image, copies a block over another, or clears an inode.
    fn whole(&mut self) {
        match self.random.below(3) {
            0 => {
                let size = place(self.random, self.image.len()).max(2 * SUPERBLOCK) & !511;
                self.said.push(format!("truncated at {size}"));
                self.end = Some(size);
            }
            1 => {
                let (from, to) = (
                    self.some_block() as usize * self.layout.block,
                    self.some_block() as usize * self.layout.block,
                );
                if from.max(to) + self.layout.block <= self.image.len() {
                    self.image.copy_within(from..from + self.layout.block, to);
                    self.said.push(format!("the block at {from} copied to {to}"));
                }
            }
            _ => {
                let at = self.layout.used[place(self.random, self.layout.used.len())].at;
                let fill = if self.random.one_in(2) { 0 } else { 0xff };
                if let Some(inode) = self.image.get_mut(at..at + self.layout.inode_size) {
                    inode.fill(fill);
                    self.said.push(format!("the inode at {at} is filled with {fill:#x}"));
                }
            }
        }
    }
}
