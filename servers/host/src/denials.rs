//! What the host denies beyond modes and access control lists.
//!
//! The client's kernel checks modes and POSIX access control lists, and the server accesses the
//! host with its own rights. A file system whose permissions are something else (NFS, SMB, procfs)
//! would then allow what it denies to the client itself.

use std::io;

use rustix::fs::{StatVfsMountFlags, fstatfs, fstatvfs};

use crate::Host;

/// `ST_NOSYMFOLLOW` of statfs(2), Linux 5.10.
const NOSYMFOLLOW: u64 = 0x2000;

/// File systems whose permissions are modes and POSIX access control lists: statfs(2),
/// linux/magic.h.
const BY_MODE: [u64; 17] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0xF2F5_2010, // f2fs
    0x794C_7630, // overlayfs
    0x7371_7368, // squashfs
    0xE0F5_E1E2, // erofs
    0xCA45_1A4E, // bcachefs
    0x3153_464A, // jfs
    0x5265_4973, // reiserfs
    0x3434,      // nilfs2
    0x9660,      // iso9660
    0x1501_3346, // udf
    0x4D44,      // vfat
    0x2011_BAB0, // exfat
];

/// Restrictions of the mount of a served directory that its clients must not lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// No program may be executed.
    pub no_execution: bool,
    /// No symbolic link may be followed.
    pub no_symlinks: bool,
}

impl Host {
    /// Returns the restrictions of the mount on which the served directory is.
    ///
    /// # Errors
    /// As statvfs(3).
    pub fn restrictions(&self) -> io::Result<Restrictions> {
        let flags = fstatvfs(self.readable())?.f_flag;
        Ok(Restrictions {
            no_execution: flags.contains(StatVfsMountFlags::NOEXEC),
            no_symlinks: flags.bits() & NOSYMFOLLOW != 0,
        })
    }

    /// Returns whether modes and POSIX access control lists are all that decides about access to
    /// the served directory, or its file system's type in statfs(2) if not.
    ///
    /// # Errors
    /// As statfs(2).
    pub fn checks_modes_only(&self) -> io::Result<Result<(), u64>> {
        let kind = u64::from_ne_bytes(fstatfs(self.readable())?.f_type.to_ne_bytes()) & 0xFFFF_FFFF;
        Ok(if BY_MODE.contains(&kind) { Ok(()) } else { Err(kind) })
    }
}
