//! Inodes as stored on the disk, and decoded.

use kumihimo_store::{Kind, Time};

use super::{get16, get32, put16, put32};

/// `i_flags`: no change is allowed.
pub const IMMUTABLE: u32 = 0x10;
/// `i_flags`: only appending is allowed.
pub const APPEND: u32 = 0x20;
/// `i_flags`: a directory with a hash tree.
pub const INDEX: u32 = 0x1000;
/// Flags that a new inode inherits from its directory (`EXT2_FL_INHERITED`). Directories inherit
/// all of them.
pub const INHERITED: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x400 | 0x8000 | 0x10000;
/// Inherited flags that apply to directories only.
pub const FOR_DIRECTORIES: u32 = 0x10000;

/// Decoded inode.
#[derive(Clone, Debug)]
pub struct Fields {
    /// Kind and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of the contents.
    pub mtime: Time,
    /// Time of the last change of the contents or the inode.
    pub ctime: Time,
    /// Time of deletion, in seconds.
    pub dtime: u32,
    /// Number of names.
    pub links: u16,
    /// Size on the disk in units of 512 bytes, indirect blocks included.
    pub sectors: u32,
    /// `i_flags`.
    pub flags: u32,
    /// Twelve blocks and one block of each level of indirection; or the target of a short symbolic
    /// link; or a device number.
    pub block: [u32; 15],
    /// Generation, which distinguishes successive inodes of one number.
    pub generation: u32,
    /// Block of extended attributes.
    pub acl_block: u32,
}

/// Returns the size of the used part of an inode's upper half (`i_extra_isize`).
fn extra(raw: &[u8]) -> usize {
    if raw.len() < 132 { 0 } else { usize::from(get16(raw, 128)).min(raw.len() - 128) }
}

/// Returns the range of attributes inside the inode, if it has room for any.
pub fn attribute_room(raw: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = 128 + extra(raw);
    (raw.len() > 128 && extra(raw) > 0 && start + 4 <= raw.len()).then_some(start..raw.len())
}

/// Reads a time: 32 bits with sign, and two more bits stored with the nanoseconds (fs/ext4/ext4.h,
/// "Extended fields will fit into an inode").
fn time(raw: &[u8], at: usize, extra_at: usize) -> Time {
    let seconds = i64::from(get32(raw, at).cast_signed());
    if extra(raw) + 128 < extra_at + 4 {
        return Time { seconds, nanoseconds: 0 };
    }
    let more = get32(raw, extra_at);
    Time {
        seconds: seconds + (i64::from(more & 3) << 32),
        nanoseconds: (more >> 2).min(999_999_999),
    }
}

fn put_time(raw: &mut [u8], at: usize, extra_at: usize, time: Time) {
    if extra(raw) + 128 < extra_at + 4 {
        let seconds = i32::try_from(time.seconds).unwrap_or(if time.seconds < 0 {
            i32::MIN
        } else {
            i32::MAX
        });
        put32(raw, at, seconds.cast_unsigned());
        return;
    }
    // From 1901 to 2446.
    let seconds = time.seconds.clamp(i64::from(i32::MIN), (3 << 32) + i64::from(i32::MAX));
    #[allow(clippy::cast_possible_truncation, reason = "the lower half, as meant")]
    let low = seconds as i32;
    let epoch = u32::try_from((seconds - i64::from(low)) >> 32).unwrap_or(0);
    put32(raw, at, low.cast_unsigned());
    put32(raw, extra_at, epoch | (time.nanoseconds << 2));
}

/// Returns the nearest time that an inode of this size can store: from 1901 to 2038 in whole
/// seconds, or from 1901 to 2446.
pub fn storable(time: Time, inode_size: usize) -> Time {
    let (earliest, latest) = match inode_size {
        128 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::from(i32::MIN), (3 << 32) + i64::from(i32::MAX)),
    };
    let seconds = time.seconds.clamp(earliest, latest);
    let nanoseconds =
        if inode_size == 128 || seconds != time.seconds { 0 } else { time.nanoseconds };
    Time { seconds, nanoseconds }
}

impl Fields {
    /// Decodes an inode.
    pub fn read(raw: &[u8]) -> Fields {
        let mode = get16(raw, 0);
        let high = if Kind::of_mode(u32::from(mode)) == Some(Kind::File) {
            u64::from(get32(raw, 108)) << 32
        } else {
            0
        };
        let mut block = [0; 15];
        for (index, number) in block.iter_mut().enumerate() {
            *number = get32(raw, 40 + 4 * index);
        }
        Fields {
            mode,
            uid: u32::from(get16(raw, 2)) | u32::from(get16(raw, 120)) << 16,
            gid: u32::from(get16(raw, 24)) | u32::from(get16(raw, 122)) << 16,
            size: u64::from(get32(raw, 4)) | high,
            atime: time(raw, 8, 140),
            ctime: time(raw, 12, 132),
            mtime: time(raw, 16, 136),
            dtime: get32(raw, 20),
            links: get16(raw, 26),
            sectors: get32(raw, 28),
            flags: get32(raw, 32),
            block,
            generation: get32(raw, 100),
            acl_block: get32(raw, 104),
        }
    }

    /// Encodes an inode over the bytes from which it was read.
    pub fn write(&self, raw: &mut [u8]) {
        #![allow(clippy::cast_possible_truncation, reason = "numbers in two halves")]
        put16(raw, 0, self.mode);
        put16(raw, 2, self.uid as u16);
        put32(raw, 4, self.size as u32);
        put_time(raw, 8, 140, self.atime);
        put_time(raw, 12, 132, self.ctime);
        put_time(raw, 16, 136, self.mtime);
        put32(raw, 20, self.dtime);
        put16(raw, 24, self.gid as u16);
        put16(raw, 26, self.links);
        put32(raw, 28, self.sectors);
        put32(raw, 32, self.flags);
        for (index, number) in self.block.iter().enumerate() {
            put32(raw, 40 + 4 * index, *number);
        }
        put32(raw, 100, self.generation);
        put32(raw, 104, self.acl_block);
        if Kind::of_mode(u32::from(self.mode)) == Some(Kind::File) {
            put32(raw, 108, (self.size >> 32) as u32);
        }
        put16(raw, 120, (self.uid >> 16) as u16);
        put16(raw, 122, (self.gid >> 16) as u16);
    }

    /// Returns the kind of the inode, if its mode is valid.
    pub fn kind(&self) -> Option<Kind> {
        Kind::of_mode(u32::from(self.mode))
    }

    /// Returns whether this is a symbolic link whose target lies in the inode itself.
    pub fn is_short_link(&self, block_size: usize) -> bool {
        let attributes = if self.acl_block == 0 { 0 } else { block_size / 512 };
        self.kind() == Some(Kind::Symlink) && self.sectors as usize <= attributes && self.size < 60
    }

    /// Returns whether `block` contains block numbers.
    pub fn has_map(&self, block_size: usize) -> bool {
        match self.kind() {
            Some(Kind::File | Kind::Directory) => true,
            Some(Kind::Symlink) => !self.is_short_link(block_size),
            _ => false,
        }
    }

    /// Returns the target of a short symbolic link.
    pub fn short_link(&self) -> Vec<u8> {
        let all: Vec<u8> = self.block.iter().flat_map(|number| number.to_le_bytes()).collect();
        all[..usize::try_from(self.size).unwrap_or(0).min(59)].to_vec()
    }

    /// Stores the target of a short symbolic link, of at most 59 bytes.
    pub fn set_short_link(&mut self, target: &[u8]) {
        let mut all = [0; 60];
        all[..target.len()].copy_from_slice(target);
        for (index, number) in self.block.iter_mut().enumerate() {
            *number = get32(&all, 4 * index);
        }
    }

    /// Returns the number of a device, encoded as by makedev(3) in 32 bits: `old_decode_dev` and
    /// `new_decode_dev` of include/linux/kdev_t.h. 0 for other files.
    pub fn device(&self) -> u32 {
        match self.kind() {
            Some(Kind::CharDevice | Kind::BlockDevice) if self.block[0] != 0 => {
                self.block[0] & 0xFFFF
            }
            Some(Kind::CharDevice | Kind::BlockDevice) => self.block[1],
            _ => 0,
        }
    }

    /// Sets a device's number, in the old encoding if it fits.
    pub fn set_device(&mut self, device: u32) {
        let (major, minor) = ((device >> 8) & 0xFFF, (device & 0xFF) | ((device >> 12) & 0xF_FF00));
        if major < 256 && minor < 256 {
            self.block[0] = (major << 8) | minor;
        } else {
            self.block[1] = device;
        }
    }
}

/// Returns the bytes of a new inode, before its fields are stored.
pub fn blank(size: usize) -> Box<[u8]> {
    let mut raw = vec![0; size].into_boxed_slice();
    if size >= 160 {
        put16(&mut raw, 128, 32);
    }
    raw
}
