//! Expected differences between Kumihimo's mounts and the kernel's file systems, with reasons.
//! The book summarises them (`docs/src/reference/limits/mounts.md`).

/// Type of the served store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// An ext2 image, compared with an image mounted by the kernel's driver.
    Ext2,
    /// A directory, compared with a directory on the same file system that is accessed directly.
    Host,
}

/// An expected difference between the transcripts of a case.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Topic and name of the case.
    pub case: &'static str,
    /// The store to which the difference applies; `None` for all stores.
    pub only: Option<Store>,
    /// Pairs of lines: the reference transcript's, and the transcript's of Kumihimo's mount.
    pub lines: &'static [(&'static str, &'static str)],
    /// Reason why the difference is acceptable.
    pub why: &'static str,
}

/// The expected differences of a store.
#[must_use]
pub fn differences(of: Store) -> Vec<&'static Difference> {
    DIFFERENCES.iter().filter(|difference| difference.only.is_none_or(|only| only == of)).collect()
}

const NODEV: &str =
    "the mount has the option nodev, as every mount by fusermount3: device nodes cannot be opened";
const TMPFILE: &str = "stores do not support O_TMPFILE; programs create a named file instead";
const MORE: &str = "the store fills the range with zeros; the kernel's driver does not support the operation without extents";

const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "open.device",
        only: None,
        lines: &[
            ("open n RDWR 0 = ok", "open n RDWR 0 = EACCES"),
            ("write gone = 4", "write gone = EBADF"),
            ("read 5 = ", "read 5 = EBADF"),
        ],
        why: NODEV,
    },
    Difference {
        case: "open.no_such_device",
        only: None,
        lines: &[("open n RDWR 0 = ENXIO", "open n RDWR 0 = EACCES")],
        why: NODEV,
    },
    Difference {
        case: "open.nameless",
        only: None,
        lines: &[
            (
                "open . DIRECTORY|RDWR|TMPFILE 600 = ok",
                "open . DIRECTORY|RDWR|TMPFILE 600 = EOPNOTSUPP",
            ),
            ("write nameless = 8", "write nameless = EBADF"),
            ("fstat = RegularFile 0600 links 0 uid 0 gid 0 size 8", "fstat = EBADF"),
        ],
        why: TMPFILE,
    },
    Difference {
        case: "open.nameless_gets_a_name",
        only: None,
        lines: &[
            (
                "open . DIRECTORY|RDWR|TMPFILE 600 = ok",
                "open . DIRECTORY|RDWR|TMPFILE 600 = EOPNOTSUPP",
            ),
            ("write named = 5", "write named = EBADF"),
            ("link the open file named = ok", "link the open file named = EBADF"),
            ("content of named = 5 bytes: n a m e d", "content of named = ENOENT"),
        ],
        why: TMPFILE,
    },
    Difference {
        case: "rename.exchanging",
        only: None,
        lines: &[
            ("rename f d EXCHANGE = ok", "rename f d EXCHANGE = EINVAL"),
            ("content of d = 1 bytes: x", "content of d = EISDIR"),
            (
                "list . = ..:Directory .:Directory d:RegularFile f:Directory",
                "list . = ..:Directory .:Directory d:Directory f:RegularFile",
            ),
        ],
        why: "stores do not support RENAME_EXCHANGE; rename(2) lists EINVAL for a flag that a file system does not support",
    },
    Difference {
        case: "setid.set_group_id_without_execution_stays",
        only: None,
        lines: &[(
            "stat f = RegularFile 0666 links 1 uid 0 gid 0 size 1",
            "stat f = RegularFile 2666 links 1 uid 0 gid 0 size 1",
        )],
        why: "the protocol requires set-group-id to be cleared only if the group may execute (FUSE_HANDLE_KILLPRIV_V2); \
              the kernel also checks whether the writer is in the group, and the server does not get this information",
    },
    Difference {
        case: "stat.seek_too_far",
        only: None,
        lines: &[(
            "seek Start(4611686018427387904) = EINVAL",
            "seek Start(4611686018427387904) = 4611686018427387904",
        )],
        why: "the kernel does not know the store's maximum file size: the later write fails instead",
    },
    Difference {
        case: "ranges.reserve",
        only: Some(Store::Ext2),
        lines: &[
            ("fallocate  0 20000 = EOPNOTSUPP", "fallocate  0 20000 = ok"),
            (
                "stat f = RegularFile 0644 links 1 uid 0 gid 0 size 1",
                "stat f = RegularFile 0644 links 1 uid 0 gid 0 size 20000",
            ),
            ("content of f = 1 bytes: x", "content of f = 20000 bytes: x 19999x\\x00"),
        ],
        why: MORE,
    },
    Difference {
        case: "ranges.zero",
        only: Some(Store::Ext2),
        lines: &[
            ("fallocate ZERO_RANGE 100 200 = EOPNOTSUPP", "fallocate ZERO_RANGE 100 200 = ok"),
            (
                "content of f = 10000 bytes: 10000xx",
                "content of f = 10000 bytes: 100xx 200x\\x00 9700xx",
            ),
        ],
        why: MORE,
    },
    Difference {
        case: "ranges.punch_all_gives_room_back",
        only: Some(Store::Ext2),
        lines: &[("blocks of f = allocated", "blocks of f = no blocks")],
        why: "the kernel's driver keeps an indirect block that points to nothing any more",
    },
    Difference {
        case: "ranges.collapse_and_insert",
        only: Some(Store::Host),
        lines: &[
            (
                "fallocate COLLAPSE_RANGE 0 4096 = ok",
                "fallocate COLLAPSE_RANGE 0 4096 = EOPNOTSUPP",
            ),
            ("fallocate INSERT_RANGE 0 4096 = ok", "fallocate INSERT_RANGE 0 4096 = EOPNOTSUPP"),
        ],
        why: "the kernel passes no such request on to a FUSE server",
    },
];
