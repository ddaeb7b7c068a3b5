//! Resolves names to inodes, and reads attributes of inodes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kumihimo_store::{Attributes, Errno, Kind, Node, Result, Time};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp,
    makedev, openat, openat2, statx,
};

/// Resolution flags: stay below the directory, follow no link, and stay on one file system.
const CONTAINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Returns `name` if it is a single component. The check makes containment independent of the
/// client.
pub fn component(name: &[u8]) -> Result<&[u8]> {
    let is_one = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
    if is_one { Ok(name) } else { Err(Errno::INVAL) }
}

/// As [`component`], for calls that change a directory.
pub fn changeable(name: &[u8]) -> Result<&[u8]> {
    if name == b"." || name == b".." { Err(Errno::INVAL) } else { component(name) }
}

/// Opens or creates `name`, a single component, in `directory`.
pub fn open_beneath(
    directory: impl AsFd,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(directory, component(name)?, flags, mode, CONTAINED)
}

/// Opens the parent directory, wherever it is. The caller checks the result.
pub fn open_above(directory: impl AsFd) -> Result<OwnedFd> {
    openat(directory, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// A path to the inode of an open descriptor (also an `O_PATH` descriptor), for system calls that
/// accept only a path. Following the path ends at the inode, even at a symbolic link. Built for
/// each use, because `/proc/self` changes after a fork.
pub fn magic(descriptor: impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

/// Opens the inode of a descriptor again with other flags.
pub fn reopen(descriptor: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(magic(descriptor), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Identity of an inode among all inodes with the same number. If the file system does not report
/// birth times, successive inodes with one number and the same type are considered equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: (u32, u32),
    pub inode: u64,
    pub born: Option<Time>,
    pub kind: Kind,
}

impl Identity {
    /// A number that differs between inodes with the same inode number.
    pub fn generation(&self) -> u64 {
        let nanoseconds = |born: Time| {
            born.seconds.wrapping_mul(1_000_000_000).wrapping_add(born.nanoseconds.into())
        };
        self.born.map_or(0, nanoseconds).cast_unsigned()
    }
}

/// Attributes reported by statx(2).
pub struct Seen {
    pub identity: Identity,
    /// True if the inode is the root of a mount.
    pub is_mount: bool,
    statx: Statx,
}

impl Seen {
    /// Attributes of an open descriptor.
    pub fn at(descriptor: impl AsFd) -> Result<Seen> {
        Seen::of(&descriptor, b"", AtFlags::EMPTY_PATH)
    }

    /// Attributes of `name`, a single component.
    pub fn beneath(directory: impl AsFd, name: &[u8]) -> Result<Seen> {
        Seen::of(&directory, component(name)?, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
    }

    fn of(directory: &impl AsFd, name: &[u8], flags: AtFlags) -> Result<Seen> {
        let seen = statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        let identity = Identity {
            device: (seen.stx_dev_major, seen.stx_dev_minor),
            inode: seen.stx_ino,
            born: (seen.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(seen.stx_btime)),
            kind: Kind::of_mode(u32::from(seen.stx_mode)).ok_or(Errno::IO)?,
        };
        Ok(Seen {
            identity,
            is_mount: seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            statx: seen,
        })
    }

    /// The lower twelve bits of the mode.
    pub fn permissions(&self) -> u32 {
        u32::from(self.statx.stx_mode) & 0o7777
    }

    pub fn owner(&self) -> (u32, u32) {
        (self.statx.stx_uid, self.statx.stx_gid)
    }

    pub fn links(&self) -> u32 {
        self.statx.stx_nlink
    }

    pub fn attributes(&self, node: Node) -> Attributes {
        let seen = &self.statx;
        Attributes {
            node,
            size: seen.stx_size,
            blocks: seen.stx_blocks,
            atime: time(seen.stx_atime),
            mtime: time(seen.stx_mtime),
            ctime: time(seen.stx_ctime),
            kind: self.identity.kind,
            permissions: self.permissions(),
            links: seen.stx_nlink,
            uid: seen.stx_uid,
            gid: seen.stx_gid,
            // Linux device numbers have a 12-bit major and a 20-bit minor part, which makedev(3)
            // puts into the lower 32 bits.
            device: (makedev(seen.stx_rdev_major, seen.stx_rdev_minor) & u64::from(u32::MAX))
                as u32,
            block_size: seen.stx_blksize,
        }
    }
}

fn time(stamp: StatxTimestamp) -> Time {
    Time { seconds: stamp.tv_sec, nanoseconds: stamp.tv_nsec }
}

/// Opens the directory to be served: with `O_PATH` for name resolution, and for reading for syncs.
pub fn open_root(path: &std::path::Path) -> Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = openat(CWD, path, flags | OFlags::RDONLY, Mode::empty())?;
    let root = openat(&readable, ".", flags | OFlags::PATH, Mode::empty())?;
    Ok((root, readable))
}
