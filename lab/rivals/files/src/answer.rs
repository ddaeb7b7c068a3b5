//! Handles requests of the FUSE protocol.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, RwLock};

use fuse_abi::linux::{
    FOPEN_DIRECT_IO, FUSE_ASYNC_READ, FUSE_ATOMIC_O_TRUNC, FUSE_BIG_WRITES, FUSE_MAX_PAGES, FUSE_PARALLEL_DIROPS,
    fuse_attr, fuse_attr_out, fuse_create_in, fuse_dirent, fuse_entry_out, fuse_in_header, fuse_init_in, fuse_init_out,
    fuse_kstatfs, fuse_opcode as Op, fuse_open_out, fuse_out_header, fuse_read_in, fuse_setattr_in, fuse_statfs_out,
    fuse_write_in, fuse_write_out,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::tree::{ENOENT, Node, Tree, now};

const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ENOSYS: i32 = 38;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const FATTR_SIZE: u32 = 1 << 3;
const PAGE: u32 = 4096;
/// Maximum size of a write and of a read.
const MOST: usize = 1 << 20;
/// Oldest minor version of the protocol with all features that are used here.
const MINOR: u32 = 31;
const HEADER: usize = size_of::<fuse_in_header>();
const DIRENT: usize = 24;

/// A buffer for the largest request.
pub fn buffer() -> Vec<u8> {
    vec![0; MOST + PAGE as usize]
}

/// Replies to requests until the connection ends. Returns the number of requests of each kind, by
/// opcode.
pub fn serve(device: &File, tree: &Tree) -> BTreeMap<u32, u64> {
    let mut buffer = buffer();
    let mut served = BTreeMap::new();
    while let Ok(opcode) = next(device, tree, &mut buffer) {
        match opcode {
            Some(opcode) => *served.entry(opcode).or_default() += 1,
            None => break,
        }
    }
    served
}

/// Handles one request, and returns its opcode. `None` after an unmount.
pub fn next(mut device: &File, tree: &Tree, buffer: &mut [u8]) -> io::Result<Option<u32>> {
    let length = loop {
        match device.read(buffer) {
            Ok(length) => break length,
            // ENOENT: the calling process was interrupted meanwhile.
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::NotFound) => {}
            Err(e) if e.raw_os_error() == Some(ENODEV) => return Ok(None),
            Err(e) => return Err(e),
        }
    };
    let request = &buffer[..length];
    let Ok((header, body)) = fuse_in_header::read_from_prefix(request) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let reply = Reply { device, unique: header.unique };
    answer(&header, body, tree, &reply);
    Ok(Some(header.opcode))
}

struct Reply<'a> {
    device: &'a File,
    unique: u64,
}

impl Reply<'_> {
    /// Sends a reply. If the calling process was interrupted (ENOENT), no reply is needed.
    fn send(&self, error: i32, parts: [&[u8]; 2]) {
        let len = (size_of::<fuse_out_header>() + parts.iter().map(|part| part.len()).sum::<usize>()) as u32;
        let header = fuse_out_header { len, error: -error, unique: self.unique };
        let all = [IoSlice::new(header.as_bytes()), IoSlice::new(parts[0]), IoSlice::new(parts[1])];
        let _ = (&mut &*self.device).write_vectored(&all);
    }

    fn give(&self, outcome: Result<impl IntoBytes + Immutable, i32>) {
        match outcome {
            Ok(body) => self.send(0, [body.as_bytes(), &[]]),
            Err(error) => self.send(error, [&[], &[]]),
        }
    }
}

fn from<T: FromBytes + KnownLayout + Immutable>(body: &[u8]) -> Result<(T, &[u8]), i32> {
    T::read_from_prefix(body).map_err(|_| EIO)
}

fn name(body: &[u8]) -> &[u8] {
    body.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn attributes(number: u64, node: &Node) -> fuse_attr {
    let (mode, size) = match node {
        Node::Directory(_) => (S_IFDIR | 0o777, 0),
        Node::File(bytes) => (S_IFREG | 0o666, bytes.read().unwrap().len() as u64),
        Node::Clock => (S_IFREG | 0o444, 0),
    };
    fuse_attr { ino: number, size, blocks: size.div_ceil(512), mode, nlink: 1, blksize: PAGE, ..fuse_attr::default() }
}

/// A reply without cache lifetimes: the kernel requests entries and attributes each time.
fn entry(number: u64, node: &Node) -> fuse_entry_out {
    fuse_entry_out { nodeid: number, attr: attributes(number, node), ..fuse_entry_out::default() }
}

const LOOKUP: u32 = Op::FUSE_LOOKUP as u32;
const FORGET: u32 = Op::FUSE_FORGET as u32;
const GETATTR: u32 = Op::FUSE_GETATTR as u32;
const SETATTR: u32 = Op::FUSE_SETATTR as u32;
const MKDIR: u32 = Op::FUSE_MKDIR as u32;
const UNLINK: u32 = Op::FUSE_UNLINK as u32;
const OPEN: u32 = Op::FUSE_OPEN as u32;
const READ: u32 = Op::FUSE_READ as u32;
const WRITE: u32 = Op::FUSE_WRITE as u32;
const STATFS: u32 = Op::FUSE_STATFS as u32;
const RELEASE: u32 = Op::FUSE_RELEASE as u32;
const FSYNC: u32 = Op::FUSE_FSYNC as u32;
const INIT: u32 = Op::FUSE_INIT as u32;
const OPENDIR: u32 = Op::FUSE_OPENDIR as u32;
const READDIR: u32 = Op::FUSE_READDIR as u32;
const RELEASEDIR: u32 = Op::FUSE_RELEASEDIR as u32;
const CREATE: u32 = Op::FUSE_CREATE as u32;
const INTERRUPT: u32 = Op::FUSE_INTERRUPT as u32;
const DESTROY: u32 = Op::FUSE_DESTROY as u32;
const BATCH_FORGET: u32 = Op::FUSE_BATCH_FORGET as u32;

fn answer(header: &fuse_in_header, body: &[u8], tree: &Tree, reply: &Reply) {
    let node = header.nodeid;
    match header.opcode {
        FORGET | BATCH_FORGET | INTERRUPT => {}
        READ => read(node, body, tree, reply),
        LOOKUP => reply.give(tree.look_up(node, name(body)).and_then(|number| Ok(entry(number, &tree.get(number)?)))),
        GETATTR => reply.give(tree.get(node).map(|found| attr_out(node, &found))),
        SETATTR => reply.give(set_attributes(node, body, tree)),
        OPEN => reply.give(tree.get(node).map(|found| {
            let open_flags = if matches!(found, Node::Clock) { FOPEN_DIRECT_IO } else { 0 };
            fuse_open_out { open_flags, ..fuse_open_out::default() }
        })),
        CREATE => reply.give(create(node, body, tree)),
        UNLINK => reply.give(tree.unlink(node, name(body)).map(|()| [0u8; 0])),
        MKDIR => reply.give(
            tree.create(node, name(body.get(8..).unwrap_or_default()), Node::Directory(Arc::default()))
                .and_then(|number| Ok(entry(number, &tree.get(number)?))),
        ),
        WRITE => reply.give(write(node, body, tree)),
        OPENDIR => reply.give(Ok(fuse_open_out::default())),
        READDIR => match read_directory(node, body, tree) {
            Ok(entries) => reply.send(0, [&entries, &[]]),
            Err(error) => reply.send(error, [&[], &[]]),
        },
        STATFS => {
            let st = fuse_kstatfs { bsize: PAGE, frsize: PAGE, namelen: 255, ..fuse_kstatfs::default() };
            reply.give(Ok(fuse_statfs_out { st }));
        }
        RELEASE | RELEASEDIR | FSYNC | DESTROY => reply.give(Ok([0u8; 0])),
        INIT => reply.give(from::<fuse_init_in>(body).map(|(asked, _)| init(&asked))),
        // FLUSH, GETXATTR and others: after ENOSYS, the kernel does not send the request again.
        _ => reply.give(Err::<[u8; 0], _>(ENOSYS)),
    }
}

fn init(asked: &fuse_init_in) -> fuse_init_out {
    let wanted = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES;
    fuse_init_out {
        major: 7,
        minor: MINOR,
        max_readahead: asked.max_readahead,
        flags: asked.flags & wanted,
        max_background: 64,
        congestion_threshold: 48,
        max_write: MOST as u32,
        time_gran: 1,
        max_pages: (MOST / PAGE as usize) as u16,
        ..fuse_init_out::default()
    }
}

fn attr_out(number: u64, node: &Node) -> fuse_attr_out {
    fuse_attr_out { attr: attributes(number, node), ..fuse_attr_out::default() }
}

fn set_attributes(number: u64, body: &[u8], tree: &Tree) -> Result<fuse_attr_out, i32> {
    let (wish, _) = from::<fuse_setattr_in>(body)?;
    let node = tree.get(number)?;
    if let (Node::File(bytes), true) = (&node, wish.valid & FATTR_SIZE != 0) {
        bytes.write().unwrap().resize(wish.size as usize, 0);
    }
    Ok(attr_out(number, &node))
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Created {
    entry: fuse_entry_out,
    open: fuse_open_out,
}

fn create(parent: u64, body: &[u8], tree: &Tree) -> Result<Created, i32> {
    let (_, rest) = from::<fuse_create_in>(body)?;
    let node = Node::File(Arc::new(RwLock::default()));
    let number = tree.create(parent, name(rest), node.clone())?;
    Ok(Created { entry: entry(number, &node), open: fuse_open_out::default() })
}

/// Replies with the file's data without copying it.
fn read(number: u64, body: &[u8], tree: &Tree, reply: &Reply) {
    let found = from::<fuse_read_in>(body).and_then(|(wish, _)| Ok((wish, tree.get(number)?)));
    match found {
        Ok((wish, Node::File(bytes))) => {
            let bytes = bytes.read().unwrap();
            let start = (wish.offset as usize).min(bytes.len());
            let end = start.saturating_add(wish.size as usize).min(bytes.len());
            reply.send(0, [&bytes[start..end], &[]]);
        }
        Ok((wish, Node::Clock)) => {
            let (seconds, nanoseconds) = now();
            let line = format!("{seconds}{nanoseconds:09}\n");
            reply.send(0, [line.as_bytes().get(wish.offset as usize..).unwrap_or_default(), &[]]);
        }
        Ok((_, Node::Directory(_))) => reply.send(EIO, [&[], &[]]),
        Err(error) => reply.send(error, [&[], &[]]),
    }
}

fn write(number: u64, body: &[u8], tree: &Tree) -> Result<fuse_write_out, i32> {
    let (wish, data) = from::<fuse_write_in>(body)?;
    let Node::File(bytes) = tree.get(number)? else { return Err(EIO) };
    let data = data.get(..wish.size as usize).ok_or(EIO)?;
    let start = wish.offset as usize;
    let end = start.checked_add(data.len()).ok_or(EIO)?;
    let mut bytes = bytes.write().unwrap();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(data);
    Ok(fuse_write_out { size: wish.size, ..fuse_write_out::default() })
}

fn read_directory(number: u64, body: &[u8], tree: &Tree) -> Result<Vec<u8>, i32> {
    let (wish, _) = from::<fuse_read_in>(body)?;
    let mut out = Vec::new();
    for (at, (name, ino)) in tree.list(number)?.into_iter().enumerate().skip(wish.offset as usize) {
        let length = (DIRENT + name.len()).next_multiple_of(8);
        if out.len() + length > wish.size as usize {
            break;
        }
        let kind = if matches!(tree.get(ino), Ok(Node::Directory(_))) { S_IFDIR } else { S_IFREG };
        let end = out.len() + length;
        for word in [ino, at as u64 + 1] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        for word in [name.len() as u32, kind >> 12] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(&name);
        out.resize(end, 0);
    }
    Ok(out)
}

const _: () = {
    assert!(HEADER == 40 && ENOENT == 2 && size_of::<fuse_dirent>() == DIRENT);
};
