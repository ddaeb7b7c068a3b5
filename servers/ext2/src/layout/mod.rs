//! Layout of the disk: little-endian structures, read and written field by field. See
//! `Documentation/filesystems/ext2.rst` and `fs/ext2/ext2.h` of Linux.

pub mod dirent;
pub mod group;
pub mod inode;
pub mod recognise;
pub mod superblock;
pub mod xattr;

/// Returns the 16-bit number at `at`.
pub fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the 32-bit number at `at`.
pub fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Stores a 16-bit number.
pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Stores a 32-bit number.
pub fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
