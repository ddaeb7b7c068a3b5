//! From a directory and a name to an inode, and from an inode to what is known of it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kumihimo_store::{Attributes, Errno, Kind, Node, Result, Time};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp,
    makedev, openat, openat2, statx,
};

/// Below the directory, through no link, on one file system.
const CONTAINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// `name` if it is one component. Containment does not rely on the sender of names.
pub fn component(name: &[u8]) -> Result<&[u8]> {
    let is_one = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
    if is_one { Ok(name) } else { Err(Errno::INVAL) }
}

/// As [`component`], for what changes a directory.
pub fn changeable(name: &[u8]) -> Result<&[u8]> {
    if name == b"." || name == b".." { Err(Errno::INVAL) } else { component(name) }
}

/// Opens or makes what `name`, one component, is in `directory`.
pub fn open_beneath(
    directory: impl AsFd,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(directory, component(name)?, flags, mode, CONTAINED)
}

/// The directory above, wherever it is: the caller checks.
pub fn open_above(directory: impl AsFd) -> Result<OwnedFd> {
    openat(directory, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// A path to the inode of an open descriptor, of one opened by `O_PATH` too: for calls that take
/// only a path. Following it ends at the inode, a symbolic link included. Named anew each time: a
/// process that forks has another `/proc/self`.
pub fn magic(descriptor: impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

/// Opens the inode of a descriptor once more, for something else.
pub fn reopen(descriptor: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(magic(descriptor), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Which inode, among all that ever had its number. Where the file system does not tell of births,
/// those that had the number one after the other are taken for one, unless they are of different
/// kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: (u32, u32),
    pub inode: u64,
    pub born: Option<Time>,
    pub kind: Kind,
}

impl Identity {
    /// Two inodes with one number differ in this.
    pub fn generation(&self) -> u64 {
        let nanoseconds = |born: Time| {
            born.seconds.wrapping_mul(1_000_000_000).wrapping_add(born.nanoseconds.into())
        };
        self.born.map_or(0, nanoseconds).cast_unsigned()
    }
}

/// What statx(2) said of an inode.
pub struct Seen {
    pub identity: Identity,
    /// Something is mounted there, and this is its root.
    pub is_mount: bool,
    statx: Statx,
}

impl Seen {
    /// Of an open descriptor.
    pub fn at(descriptor: impl AsFd) -> Result<Seen> {
        Seen::of(&descriptor, b"", AtFlags::EMPTY_PATH)
    }

    /// Of `name`, one component.
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
            // The kernel's numbers of devices have 12 and 20 bits, which makedev(3) puts into the
            // lower 32.
            device: (makedev(seen.stx_rdev_major, seen.stx_rdev_minor) & u64::from(u32::MAX))
                as u32,
            block_size: seen.stx_blksize,
        }
    }
}

fn time(stamp: StatxTimestamp) -> Time {
    Time { seconds: stamp.tv_sec, nanoseconds: stamp.tv_nsec }
}

/// Opens the directory that is to be served: to be resolved from, and to be synced.
pub fn open_root(path: &std::path::Path) -> Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = openat(CWD, path, flags | OFlags::RDONLY, Mode::empty())?;
    let root = openat(&readable, ".", flags | OFlags::PATH, Mode::empty())?;
    Ok((root, readable))
}
