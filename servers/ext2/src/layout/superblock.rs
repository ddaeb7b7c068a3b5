//! The superblock: 1024 bytes at byte 1024.

use super::{get16, get32, put16, put32};

/// Where it lies, and how long it is.
pub const PLACE: u64 = 1024;
/// Bytes.
pub const LENGTH: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;

/// `s_state`: unmounted cleanly.
pub const CLEAN: u16 = 1;
/// `s_state`: someone found damage.
pub const ERRORS: u16 = 2;

/// `COMPAT`: there is a journal (ext3).
pub const HAS_JOURNAL: u32 = 4;
/// `COMPAT`: extended attributes.
pub const EXT_ATTR: u32 = 8;
/// `COMPAT`: backups lie elsewhere.
pub const SPARSE_SUPER2: u32 = 0x200;
/// `INCOMPAT`: directory entries say what they lead to.
pub const FILETYPE: u32 = 2;
/// `RO_COMPAT`: backups in some groups only.
pub const SPARSE_SUPER: u32 = 1;
/// `RO_COMPAT`: there are files of 2 GiB and more.
pub const LARGE_FILE: u32 = 2;
/// `RO_COMPAT`: a part of the inodes' upper half is reserved.
pub const EXTRA_ISIZE: u32 = 0x40;

/// Incompatible features that are not ours, by bit, as one says them.
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

/// Features with which a file system may be read only, as one says them.
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

/// A superblock as it lies on the disk.
#[derive(Clone)]
pub struct Superblock(pub [u8; LENGTH]);

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident $at:literal $get:ident $type:ty;)*) => {
        $($(#[$doc])* pub fn $name(&self) -> $type { $get(&self.0, $at) })*
    };
}

impl Superblock {
    numbers! {
        /// Inodes.
        inodes 0 get32 u32;
        /// Blocks.
        blocks 4 get32 u32;
        /// Blocks kept for root.
        reserved_blocks 8 get32 u32;
        /// The block in which group 0 begins.
        first_data_block 20 get32 u32;
        /// Block size: 1024 shifted left by this.
        log_block_size 24 get32 u32;
        /// Blocks of a group.
        blocks_per_group 32 get32 u32;
        /// Inodes of a group.
        inodes_per_group 40 get32 u32;
        /// Mounts since the last check.
        mounts 52 get16 u16;
        /// Magic.
        magic 56 get16 u16;
        /// Clean, damaged.
        state 58 get16 u16;
        /// Revision.
        revision 76 get32 u32;
        /// Of revision 1: the first inode that is not reserved.
        raw_first_inode 84 get32 u32;
        /// Of revision 1: bytes of an inode.
        raw_inode_size 88 get16 u16;
        /// Compatible features.
        raw_compat 92 get32 u32;
        /// Incompatible features.
        raw_incompat 96 get32 u32;
        /// Features that forbid writing.
        raw_ro_compat 100 get32 u32;
        /// Blocks kept behind the group descriptors.
        reserved_descriptors 206 get16 u16;
        /// Head of the list of inodes without a name.
        last_orphan 232 get32 u32;
    }

    /// The first inode that is not reserved.
    pub fn first_inode(&self) -> u32 {
        if self.revision() == 0 { 11 } else { self.raw_first_inode() }
    }

    /// Bytes of an inode.
    pub fn inode_size(&self) -> u16 {
        if self.revision() == 0 { 128 } else { self.raw_inode_size() }
    }

    /// Compatible features.
    pub fn compat(&self) -> u32 {
        if self.revision() == 0 { 0 } else { self.raw_compat() }
    }

    /// Incompatible features.
    pub fn incompat(&self) -> u32 {
        if self.revision() == 0 { 0 } else { self.raw_incompat() }
    }

    /// Features that forbid writing.
    pub fn ro_compat(&self) -> u32 {
        if self.revision() == 0 { 0 } else { self.raw_ro_compat() }
    }

    /// What forbids even reading, named.
    pub fn incompatible(&self) -> Option<String> {
        named(self.incompat() & !FILETYPE, &INCOMPATIBLE)
    }

    /// What forbids writing, named.
    pub fn not_writable(&self) -> Option<String> {
        named(self.ro_compat() & !(SPARSE_SUPER | LARGE_FILE | EXTRA_ISIZE), &READ_ONLY)
    }

    /// Sets the state, for a mount or its end.
    pub fn set_state(&mut self, state: u16) {
        put16(&mut self.0, 58, state);
    }

    /// Counts a mount at `now`, in seconds since 1970.
    pub fn count_mount(&mut self, now: u32) {
        put32(&mut self.0, 44, now);
        let mounts = self.mounts().saturating_add(1);
        put16(&mut self.0, 52, mounts);
    }

    /// Free blocks, free inodes, and when that was written.
    pub fn set_counts(&mut self, blocks: u32, inodes: u32, now: u32) {
        put32(&mut self.0, 12, blocks);
        put32(&mut self.0, 16, inodes);
        put32(&mut self.0, 48, now);
    }

    /// Adds features; a file system of revision 0 has no place for them, and becomes one of
    /// revision 1.
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

    /// The list of inodes without a name is empty.
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
        known.push(format!("feature {unknown:#x}, which is not known"));
    }
    Some(known.join(", "))
}
