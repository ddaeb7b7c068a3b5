//! Arguments and results of store operations.

/// Number of an inode in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

/// Type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// FIFO.
    Fifo,
    /// Name of a UNIX socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl Kind {
    /// `S_IFMT`: the bits of a mode that contain the type.
    pub const MASK: u32 = 0o170_000;

    /// Returns the type in a mode, or `None` if its bits are invalid.
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

    /// Returns the type's bits in a mode. Shifted right by 12 they are the `d_type` of readdir(3).
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

/// Time: seconds since 1970, and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

impl Time {
    /// Returns the current time of the machine's clock.
    #[must_use]
    pub fn now() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Time { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }
}

/// Attributes, as in stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Number of the inode.
    pub node: Node,
    /// Size in bytes.
    pub size: u64,
    /// Size on the disk in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of the contents.
    pub mtime: Time,
    /// Time of the last change of the contents or the attributes.
    pub ctime: Time,
    /// Type.
    pub kind: Kind,
    /// The lower twelve bits of the mode.
    pub permissions: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number: major and minor as encoded by makedev(3) in 32 bits.
    pub device: u32,
    /// Preferred size of reads and writes, in bytes.
    pub block_size: u32,
}

/// Result of a look-up or creation. It holds one reference, which `Store::forget` releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Generation of the inode, which distinguishes successive inodes of one number.
    pub generation: u64,
    /// Its attributes, with its number.
    pub attributes: Attributes,
}

/// Calling process and its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// File system user id.
    pub uid: u32,
    /// File system group id.
    pub gid: u32,
    /// Process id.
    pub pid: u32,
    /// File mode creation mask. A default access control list of the directory replaces it.
    pub umask: u32,
}

/// Inode to be created. Modes have twelve bits, before the caller's umask is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New<'a> {
    /// Regular file.
    File {
        /// Permissions.
        mode: u32,
    },
    /// Directory.
    Directory {
        /// Permissions.
        mode: u32,
    },
    /// Symbolic link to `target`.
    Symlink {
        /// Target, not empty and without zero bytes.
        target: &'a [u8],
    },
    /// FIFO, name of a socket, or device.
    Special {
        /// Type.
        kind: Kind,
        /// Permissions.
        mode: u32,
        /// As [`Attributes::device`].
        device: u32,
    },
}

/// New value of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The current time of the store's clock.
    Now,
    /// The given time.
    At(Time),
}

/// Changes of attributes; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The lower twelve bits of the mode.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size: truncates or extends the file.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<Stamp>,
    /// Time of the last change of the contents.
    pub mtime: Option<Stamp>,
    /// Time of the last change of attributes; set only by a kernel with a write-back cache.
    pub ctime: Option<Time>,
    /// Whether to clear set-user-id and set-group-id, as a change of owner or size by a user other
    /// than root does.
    pub kill_privileges: bool,
}

/// Statistics, as in statvfs(3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Number of data blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub free: u64,
    /// Number of blocks available to users other than root.
    pub available: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Number of free inodes.
    pub free_inodes: u64,
    /// Maximum length of a name in bytes.
    pub longest_name: u32,
}
