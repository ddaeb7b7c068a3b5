//! Random operations, which proptest shrinks: first to fewer operations, then to smaller numbers.
//! Operations refer to inodes by small numbers, taken modulo the number of inodes that exist at
//! that moment. A sequence therefore stays valid when operations are removed from it.

use kumihimo_store::{Kind, Seek, XattrMode};
use proptest::prelude::*;

/// One operation. `directory`, `node` and `listing` select among the referenced inodes and the
/// active listings.
#[allow(missing_docs, reason = "each is an operation of `Store`, with its arguments")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Lookup {
        directory: u8,
        name: Name,
    },
    Make {
        directory: u8,
        name: Name,
        what: Made,
    },
    Unlink {
        directory: u8,
        name: Name,
    },
    RemoveDirectory {
        directory: u8,
        name: Name,
    },
    Rename {
        from: u8,
        name: Name,
        to: u8,
        new_name: Name,
        keep: bool,
    },
    Link {
        node: u8,
        directory: u8,
        name: Name,
    },
    Attributes {
        node: u8,
    },
    Change {
        node: u8,
        change: Change,
    },
    ReadLink {
        node: u8,
    },
    Open {
        node: u8,
        writing: bool,
    },
    Release {
        open: u8,
    },
    Read {
        node: u8,
        at: u64,
        length: u16,
    },
    Write {
        node: u8,
        at: u64,
        length: u16,
        fill: u8,
    },
    Allocate {
        node: u8,
        mode: u32,
        at: u64,
        length: u32,
    },
    Seek {
        node: u8,
        at: u64,
        what: Seek,
    },
    Sync {
        node: u8,
        data: bool,
    },
    SyncAll,
    /// A whole listing, read in portions.
    List {
        directory: u8,
        portion: u8,
    },
    /// Start of a listing. Other operations happen before its end.
    Begin {
        directory: u8,
        portion: u8,
    },
    /// Rest of a listing.
    Finish {
        listing: u8,
        portion: u8,
    },
    Xattr {
        node: u8,
        name: u8,
    },
    Xattrs {
        node: u8,
    },
    SetXattr {
        node: u8,
        name: u8,
        length: u16,
        mode: XattrMode,
    },
    RemoveXattr {
        node: u8,
        name: u8,
    },
    /// Drops all references to an inode that is not open.
    Forget {
        node: u8,
    },
    /// The store may write cached data back.
    WriteBack,
    Remount,
}

/// Type of the file that `Make` creates.
#[allow(missing_docs, reason = "as `New`")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    File { mode: u32 },
    Directory { mode: u32 },
    Symlink { length: u16 },
    Special { kind: Kind, mode: u32, device: u32 },
}

/// One change of an attribute.
#[allow(missing_docs, reason = "as `Changes`")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Permissions(u32),
    Owner { uid: u32, gid: u32, kill: bool },
    Size { size: u64, kill: bool },
    Times { atime: Option<u32>, mtime: Option<u32> },
}

/// A name, encoded as a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name(pub u8);

const NAMES: u8 = 16;

impl Name {
    /// The bytes of the name. The names include lengths of one byte, lengths at which the size of a
    /// directory entry changes, 255 and 256 bytes, and names that are not valid UTF-8.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self.0 % NAMES {
            number @ 0..=5 => vec![b'a' + number],
            6 => vec![0xff],
            7 => vec![b'u', 0xc3, 0x28, 0x80],
            8 => b"lost+found".to_vec(),
            9 => b" -.\n\\".to_vec(),
            10 => vec![b'm'; 100],
            11 => vec![b'n'; 101],
            12 => vec![0x80; 255],
            13 => vec![b'x'; 255],
            14 => vec![b'y'; 254],
            _ => vec![b'z'; 256],
        }
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.bytes();
        match bytes.len() {
            0..=10 => write!(f, "Name({}: {:?})", self.0, String::from_utf8_lossy(&bytes)),
            length => write!(f, "Name({}: {length} bytes of {:#x})", self.0, bytes[0]),
        }
    }
}

/// The name of an xattr, encoded as a number.
#[must_use]
pub fn xattr_name(number: u8) -> Vec<u8> {
    match number % 8 {
        number @ 0..=3 => vec![b'u', b's', b'e', b'r', b'.', b'a' + number],
        4 => b"trusted.one".to_vec(),
        5 => b"security.two".to_vec(),
        6 => [b"user.".as_slice(), &[b'w'; 200]].concat(),
        _ => vec![b'u', b's', b'e', b'r', b'.', 0xff],
    }
}

/// A symbolic link target of `length` bytes. Its contents depend on the length.
#[must_use]
pub fn target(length: u16) -> Vec<u8> {
    (0..length).map(|at| b'a' + u8::try_from((at + length) % 26).expect("below 26")).collect()
}

/// The bytes that a write with `fill` at `at` writes. They differ from position to position and
/// include zeros. A `fill` of 0 writes zeros only.
#[must_use]
pub fn bytes(at: u64, length: u16, fill: u8) -> Vec<u8> {
    (0..u64::from(length))
        .map(|i| fill.wrapping_mul(1 | u8::try_from((at + i) % 251).expect("below 251")))
        .collect()
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![5 => 0..4u8, 1 => 0..NAMES].prop_map(Name)
}

/// Offsets near boundaries: block sizes, the first block that an indirect block of each depth maps,
/// 2 and 4 GiB.
fn offset() -> impl Strategy<Value = u64> {
    let block = prop_oneof![Just(1024u64), Just(2048), Just(4096)];
    let edge = (block, 0..4u32).prop_map(|(block, depth)| {
        let pointers = block / 4;
        let direct = [0, 12, 12 + pointers, 12 + pointers + pointers * pointers];
        direct[depth as usize] * block
    });
    let base = prop_oneof![8 => (0..40u64).prop_map(|n| n * 512), 4 => edge, 1 => Just(1 << 31), 1 => Just(1 << 32)];
    prop_oneof![
        3 => 0..20_000u64,
        4 => (base, 0..6u64).prop_map(|(base, near)| (base + near).saturating_sub(3)),
        1 => Just(0),
    ]
}

fn length() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 0..600u16, 3 => 0..9_000u16, 1 => prop_oneof![Just(1024u16), Just(4096), Just(20_000)]]
}

fn mode() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0o644),
        Just(0o755),
        Just(0o4755),
        Just(0o2644),
        Just(0o2775),
        Just(0o1777),
        Just(0),
        0..0o10000u32
    ]
}

fn id() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1000), Just(65_535), Just(65_536), Just(u32::MAX - 1)]
}

fn special() -> impl Strategy<Value = Made> {
    let kind = prop_oneof![
        Just(Kind::Fifo),
        Just(Kind::Socket),
        Just(Kind::CharDevice),
        Just(Kind::BlockDevice),
        Just(Kind::File),
    ];
    // Device numbers with 8-bit major and minor, and with 12-bit major and 20-bit minor.
    let device = prop_oneof![Just(0x0103), Just(0xffff), Just(0x0011_2233), Just(u32::MAX)];
    (kind, mode(), device).prop_map(|(kind, mode, device)| Made::Special { kind, mode, device })
}

fn made() -> impl Strategy<Value = Made> {
    let symlink = prop_oneof![Just(1u16), Just(59), Just(60), Just(61), Just(1000), Just(5000)]
        .prop_map(|length| Made::Symlink { length });
    prop_oneof![
        5 => mode().prop_map(|mode| Made::File { mode }),
        5 => mode().prop_map(|mode| Made::Directory { mode }),
        2 => symlink,
        1 => special(),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let time = || {
        proptest::option::of(prop_oneof![
            Just(0u32),
            Just(1),
            Just(i32::MAX as u32),
            1..u32::MAX >> 1
        ])
    };
    prop_oneof![
        2 => mode().prop_map(Change::Permissions),
        1 => (id(), id(), any::<bool>()).prop_map(|(uid, gid, kill)| Change::Owner { uid, gid, kill }),
        6 => (offset(), proptest::bool::weighted(0.2)).prop_map(|(size, kill)| Change::Size { size, kill }),
        1 => (time(), time()).prop_map(|(atime, mtime)| Change::Times { atime, mtime }),
    ]
}

fn fallocate() -> impl Strategy<Value = u32> {
    // No flag; KEEP_SIZE; PUNCH_HOLE with KEEP_SIZE; ZERO_RANGE without and with KEEP_SIZE.
    // COLLAPSE_RANGE, and PUNCH_HOLE alone, must fail.
    prop_oneof![2 => Just(0u32), 2 => Just(1), 4 => Just(3), 2 => Just(16), 1 => Just(17), 1 => Just(8), 1 => Just(2)]
}

fn xattr_mode() -> impl Strategy<Value = XattrMode> {
    prop_oneof![3 => Just(XattrMode::Any), 1 => Just(XattrMode::Create), 1 => Just(XattrMode::Replace)]
}

fn names() -> impl Strategy<Value = Operation> {
    let d = any::<u8>;
    prop_oneof![
        3 => (d(), name()).prop_map(|(directory, name)| Operation::Lookup { directory, name }),
        12 => (d(), name(), made()).prop_map(|(directory, name, what)| Operation::Make { directory, name, what }),
        5 => (d(), name()).prop_map(|(directory, name)| Operation::Unlink { directory, name }),
        3 => (d(), name()).prop_map(|(directory, name)| Operation::RemoveDirectory { directory, name }),
        8 => (d(), name(), d(), name(), proptest::bool::weighted(0.2))
            .prop_map(|(from, name, to, new_name, keep)| Operation::Rename { from, name, to, new_name, keep }),
        3 => (d(), d(), name()).prop_map(|(node, directory, name)| Operation::Link { node, directory, name }),
        2 => (d(), 1..5u8).prop_map(|(directory, portion)| Operation::List { directory, portion }),
        1 => (d(), 1..5u8).prop_map(|(directory, portion)| Operation::Begin { directory, portion }),
        1 => (d(), 1..5u8).prop_map(|(listing, portion)| Operation::Finish { listing, portion }),
    ]
}

fn contents() -> impl Strategy<Value = Operation> {
    let n = any::<u8>;
    let data = prop_oneof![Just(Seek::Data), Just(Seek::Hole)];
    prop_oneof![
        9 => (n(), offset(), length(), any::<u8>()).prop_map(|(node, at, length, fill)| Operation::Write { node, at, length, fill }),
        4 => (n(), offset(), length()).prop_map(|(node, at, length)| Operation::Read { node, at, length }),
        2 => (n(), fallocate(), offset(), 1..30_000u32)
            .prop_map(|(node, mode, at, length)| Operation::Allocate { node, mode, at, length }),
        2 => (n(), offset(), data).prop_map(|(node, at, what)| Operation::Seek { node, at, what }),
        2 => (n(), any::<bool>()).prop_map(|(node, writing)| Operation::Open { node, writing }),
        2 => n().prop_map(|open| Operation::Release { open }),
    ]
}

fn attributes() -> impl Strategy<Value = Operation> {
    let n = any::<u8>;
    prop_oneof![
        1 => n().prop_map(|node| Operation::Attributes { node }),
        6 => (n(), change()).prop_map(|(node, change)| Operation::Change { node, change }),
        1 => n().prop_map(|node| Operation::ReadLink { node }),
        1 => (n(), n()).prop_map(|(node, name)| Operation::Xattr { node, name }),
        1 => n().prop_map(|node| Operation::Xattrs { node }),
        4 => (n(), n(), prop_oneof![3 => 0..40u16, 1 => 0..5000u16], xattr_mode())
            .prop_map(|(node, name, length, mode)| Operation::SetXattr { node, name, length, mode }),
        1 => (n(), n()).prop_map(|(node, name)| Operation::RemoveXattr { node, name }),
    ]
}

fn store() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => (any::<u8>(), any::<bool>()).prop_map(|(node, data)| Operation::Sync { node, data }),
        1 => Just(Operation::SyncAll),
        4 => any::<u8>().prop_map(|node| Operation::Forget { node }),
        2 => Just(Operation::WriteBack),
        1 => Just(Operation::Remount),
    ]
}

/// Any operation.
pub fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![10 => names(), 8 => contents(), 3 => attributes(), 1 => store()]
}

/// A sequence of operations.
pub fn sequence(
    length: impl Into<proptest::collection::SizeRange>,
) -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), length)
}
