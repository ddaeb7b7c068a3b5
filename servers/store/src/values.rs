//! Values that go in and out of a store.

/// An inode's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A UNIX socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// `S_IFMT`: the bits of a mode that say what it is.
    pub const MASK: u32 = 0o170_000;

    /// Of a mode's bits; `None` where they mean nothing.
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & Kind::MASK {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Directory,
            0o120_000 => Kind::Symlink,
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            0o020_000 => Kind::CharDevice,
            0o060_000 => Kind::BlockDevice,
            _ => return None,
        })
    }

    /// Its bits in a mode. Shifted right by 12 it is what readdir(3) calls `d_type`.
    #[must_use]
    pub fn mode(self) -> u32 {
        match self {
            Kind::File => 0o100_000,
            Kind::Directory => 0o040_000,
            Kind::Symlink => 0o120_000,
            Kind::Fifo => 0o010_000,
            Kind::Socket => 0o140_000,
            Kind::CharDevice => 0o020_000,
            Kind::BlockDevice => 0o060_000,
        }
    }
}

/// A moment: seconds since 1970, and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds; before 1970 below 0.
    pub seconds: i64,
    /// Nanoseconds on top.
    pub nanoseconds: u32,
}

impl Time {
    /// Now, by the machine's clock.
    #[must_use]
    pub fn now() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Time { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }
}

/// What stat(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode.
    pub node: Node,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that it takes on the disk.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Contents last changed.
    pub mtime: Time,
    /// Anything last changed.
    pub ctime: Time,
    /// What it is.
    pub kind: Kind,
    /// The lower twelve bits of the mode.
    pub permissions: u32,
    /// Names that lead to it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device: major and minor as makedev(3) puts them into 32 bits.
    pub device: u32,
    /// Bytes that are best read and written at once.
    pub block_size: u32,
}

/// A node that was looked up or made. It holds one reference, which `Store::forget` gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which of the inodes that had this number: an inode's number is used again after its end,
    /// with another generation.
    pub generation: u64,
    /// Its attributes, with its number.
    pub attributes: Attributes,
}

/// The asking user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// File system user id.
    pub uid: u32,
    /// File system group id.
    pub gid: u32,
    /// Process.
    pub pid: u32,
}

/// What is to be made. Modes are twelve bits, the caller's umask already taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New<'a> {
    /// A regular file.
    File {
        /// Permissions.
        mode: u32,
    },
    /// A directory.
    Directory {
        /// Permissions.
        mode: u32,
    },
    /// A symbolic link that leads to `target`.
    Symlink {
        /// Not empty, without zero bytes.
        target: &'a [u8],
    },
    /// A FIFO, a socket's name or a device.
    Special {
        /// Which.
        kind: Kind,
        /// Permissions.
        mode: u32,
        /// As [`Attributes::device`].
        device: u32,
    },
}

/// To what a time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The store's own clock.
    Now,
    /// This.
    At(Time),
}

/// What is to be changed; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The lower twelve bits of the mode.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncate or extend to so many bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<Stamp>,
    /// Contents last changed.
    pub mtime: Option<Stamp>,
    /// The kernel's own, with its write-back cache only.
    pub ctime: Option<Time>,
    /// Take set-user-id and set-group-id off, as a change of owner or size by a user other than
    /// root does.
    pub kill_privileges: bool,
}

/// What statvfs(3) shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks for data.
    pub blocks: u64,
    /// Of these free.
    pub free: u64,
    /// Of these free for users other than root.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Of these free.
    pub free_inodes: u64,
    /// The longest name in bytes.
    pub longest_name: u32,
}
