//! Superblock: 1024 bytes at byte 1024 of the disk.

use super::{get16, get32, put16, put32};

/// Offset of the superblock.
pub const PLACE: u64 = 1024;
/// Size of the superblock.
pub const LENGTH: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;

/// `s_state`: unmounted cleanly.
pub const CLEAN: u16 = 1;
/// `s_state`: damage was found.
pub const ERRORS: u16 = 2;

/// `COMPAT`: the file system has a journal (ext3).
pub const HAS_JOURNAL: u32 = 4;
/// `COMPAT`: extended attributes.
pub const EXT_ATTR: u32 = 8;
/// `COMPAT`: backups of the superblock lie in other groups.
pub const SPARSE_SUPER2: u32 = 0x200;
/// `INCOMPAT`: directory entries contain the file type.
pub const FILETYPE: u32 = 2;
/// `RO_COMPAT`: only some groups have backups of the superblock.
pub const SPARSE_SUPER: u32 = 1;
/// `RO_COMPAT`: some files have 2 GiB or more.
pub const LARGE_FILE: u32 = 2;
/// `RO_COMPAT`: part of the inodes' upper half is reserved.
pub const EXTRA_ISIZE: u32 = 0x40;

/// Names of unsupported incompatible features, by bit.
const INCOMPATIBLE: [(u32, &str); 15] = [
    (0x1, "compression"),
    (0x4, "a journal to replay (needs_recovery): run e2fsck"),
    (0x8, "an external journal (journal_dev)"),
    (0x10, "meta_bg"),
    (0x40, "ext4's extents"),
    (0x80, "ext4's 64bit"),
    (0x100, "ext4's mmp"),
    (0x200, "ext4's flex_bg"),
    (0x400, "ext4's ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "ext4's metadata_csum_seed"),
    (0x4000, "ext4's large_dir"),
    (0x8000, "ext4's inline_data"),
    (0x10000, "ext4's encrypt"),
    (0x20000, "ext4's casefold"),
];

/// Names of features that permit only reading, by bit.
const READ_ONLY: [(u32, &str); 12] = [
    (0x4, "btree_dir"),
    (0x8, "ext4's huge_file"),
    (0x10, "ext4's uninit_bg"),
    (0x20, "ext4's dir_nlink"),
    (0x80, "has_snapshot"),
    (0x100, "quota"),
    (0x200, "ext4's bigalloc"),
    (0x400, "ext4's metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x8000, "verity"),
];

/// Superblock as stored on the disk.
#[derive(Clone)]
pub struct Superblock(pub [u8; LENGTH]);

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident $at:literal $get:ident $type:ty;)*) => {
        $($(#[$doc])* pub fn $name(&self) -> $type { $get(&self.0, $at) })*
    };
}

impl Superblock {
    numbers! {
        /// Number of inodes.
        inodes 0 get32 u32;
        /// Number of blocks.
        blocks 4 get32 u32;
        /// Number of blocks reserved for root.
        reserved_blocks 8 get32 u32;
        /// First block of group 0.
        first_data_block 20 get32 u32;
        /// Block size: 1024 shifted left by this.
        log_block_size 24 get32 u32;
        /// Number of blocks of a group.
        blocks_per_group 32 get32 u32;
        /// Number of inodes of a group.
        inodes_per_group 40 get32 u32;
        /// Number of mounts since the last check.
        mounts 52 get16 u16;
        /// Magic number.
        magic 56 get16 u16;
        /// State: clean, damaged.
        state 58 get16 u16;
        /// Revision.
        revision 76 get32 u32;
        /// First inode that is not reserved (revision 1).
        raw_first_inode 84 get32 u32;
        /// Size of an inode (revision 1).
        raw_inode_size 88 get16 u16;
        /// Compatible features.
        raw_compat 92 get32 u32;
        /// Incompatible features.
        raw_incompat 96 get32 u32;
        /// Features that forbid writing.
        raw_ro_compat 100 get32 u32;
        /// Number of blocks reserved for more group descriptors.
        reserved_descriptors 206 get16 u16;
        /// First inode of the list of orphans.
        last_orphan 232 get32 u32;
    }

    /// Returns the first inode that is not reserved.
    pub fn first_inode(&self) -> u32 {
        if self.revision() == 0 { 11 } else { self.raw_first_inode() }
    }

    /// Returns the size of an inode in bytes.
    pub fn inode_size(&self) -> u16 {
        if self.revision() == 0 { 128 } else { self.raw_inode_size() }
    }

    /// Returns the compatible features.
    pub fn compat(&self) -> u32 {
        if self.revision() == 0 { 0 } else { self.raw_compat() }
    }

    /// Returns the incompatible features.
    pub fn incompat(&self) -> u32 {
        if self.revision() == 0 { 0 } else { self.raw_incompat() }
    }

    /// Returns the features that forbid writing.
    pub fn ro_compat(&self) -> u32 {
        if self.revision() == 0 { 0 } else { self.raw_ro_compat() }
    }

    /// Returns the names of features that forbid reading, if there are any.
    pub fn incompatible(&self) -> Option<String> {
        named(self.incompat() & !FILETYPE, &INCOMPATIBLE)
    }

    /// Returns the names of features that forbid writing, if there are any.
    pub fn not_writable(&self) -> Option<String> {
        named(self.ro_compat() & !(SPARSE_SUPER | LARGE_FILE | EXTRA_ISIZE), &READ_ONLY)
    }

    /// Sets the state, at a mount or an unmount.
    pub fn set_state(&mut self, state: u16) {
        put16(&mut self.0, 58, state);
    }

    /// Counts a mount at time `now`, in seconds since 1970.
    pub fn count_mount(&mut self, now: u32) {
        put32(&mut self.0, 44, now);
        let mounts = self.mounts().saturating_add(1);
        put16(&mut self.0, 52, mounts);
    }

    /// Sets the counts of free blocks and inodes, and the time of the last write.
    pub fn set_counts(&mut self, blocks: u32, inodes: u32, now: u32) {
        put32(&mut self.0, 12, blocks);
        put32(&mut self.0, 16, inodes);
        put32(&mut self.0, 48, now);
    }

    /// Adds features. A file system of revision 0 has no fields for them and becomes revision 1.
    pub fn add_features(&mut self, compat: u32, ro_compat: u32) {
        if self.revision() == 0 {
            put32(&mut self.0, 76, 1);
            put32(&mut self.0, 84, 11);
            put16(&mut self.0, 88, 128);
            self.0[90..104].fill(0);
        }
        let both = (self.raw_compat() | compat, self.raw_ro_compat() | ro_compat);
        put32(&mut self.0, 92, both.0);
        put32(&mut self.0, 100, both.1);
    }

    /// Clears the list of orphans.
    pub fn no_orphans(&mut self) {
        put32(&mut self.0, 232, 0);
    }
}

fn named(bits: u32, names: &[(u32, &str)]) -> Option<String> {
    if bits == 0 {
        return None;
    }
    let mut known: Vec<String> = names
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let unknown = bits & !names.iter().fold(0, |all, (bit, _)| all | bit);
    if unknown != 0 {
        known.push(format!("unknown feature {unknown:#x}"));
    }
    Some(known.join(", "))
}
