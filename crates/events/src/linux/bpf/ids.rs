//! The machine's BPF objects, found by their ids: bpf(2) with `BPF_*_GET_NEXT_ID`,
//! `BPF_*_GET_FD_BY_ID` and `BPF_OBJ_GET_INFO_BY_FD`.
//!
//! An id is unique among the objects of one kind, over all containers and pid namespaces. The
//! kernel gives ids out in cyclic order up to 2^31 (`idr_alloc_cyclic` in kernel/bpf/syscall.c), so
//! a freed one does not come back soon. Both enumeration and opening need CAP_SYS_ADMIN.

use std::io;
use std::os::fd::BorrowedFd;

use kumihimo_arch::descriptor::Descriptor;

use super::sys::{bpf, number, owned};

const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;
const LINK_RAW_TRACEPOINT: u32 = 1;

/// The kinds of objects that have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Program,
    Map,
    Link,
}

impl ObjectKind {
    /// BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID.
    const fn next(self) -> i64 {
        match self {
            ObjectKind::Program => 11,
            ObjectKind::Map => 12,
            ObjectKind::Link => 31,
        }
    }

    /// BPF_PROG_GET_FD_BY_ID, BPF_MAP_GET_FD_BY_ID, BPF_LINK_GET_FD_BY_ID.
    const fn open(self) -> i64 {
        match self {
            ObjectKind::Program => 13,
            ObjectKind::Map => 14,
            ObjectKind::Link => 30,
        }
    }
}

#[repr(C)]
struct Id {
    id: u32,
    next: u32,
    flags: u32,
}

/// The lowest id above `after`; None: there is none.
pub(super) fn next(kind: ObjectKind, after: u32) -> io::Result<Option<u32>> {
    let mut attr = Id { id: after, next: 0, flags: 0 };
    // SAFETY: no addresses in it.
    match unsafe { bpf(kind.next(), &mut attr) } {
        Ok(_) => Ok(Some(attr.next)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All ids of a kind, ascending.
pub(super) fn all(kind: ObjectKind) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    while let Some(id) = next(kind, ids.last().copied().unwrap_or(0))? {
        ids.push(id);
    }
    Ok(ids)
}

/// Whether an object with this id exists. Takes no reference to it.
pub(super) fn exists(kind: ObjectKind, id: u32) -> io::Result<bool> {
    Ok(next(kind, id.saturating_sub(1))? == Some(id))
}

/// A descriptor of the object; None: it is gone.
///
/// A link has its id before it is attached; until then the error is EAGAIN (`bpf_link_by_id`).
pub(super) fn open(kind: ObjectKind, id: u32) -> io::Result<Option<Descriptor>> {
    let mut attr = Id { id, next: 0, flags: 0 };
    // SAFETY: no addresses in it; the result is a new descriptor.
    match unsafe { bpf(kind.open(), &mut attr).map(|fd| owned(fd)) } {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The kernel's description of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramInfo {
    pub(super) kind: u32,
    pub(super) id: u32,
    /// The kernel's hash of the instructions, without the maps that they refer to.
    pub(super) tag: [u8; 8],
    /// The user that has loaded it.
    pub(super) user: u32,
    /// The maps, in the order in which the instructions first use them.
    pub(super) maps: Vec<u32>,
    pub(super) name: [u8; 16],
}

/// The kernel's description of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapShape {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    pub(super) name: [u8; 16],
}

/// The kernel's description of a link to a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkInfo {
    pub(super) id: u32,
    pub(super) program: u32,
    /// The tracepoint's name, filled up with zeros.
    pub(super) tracepoint: [u8; 32],
}

/// Fills `info`, a prefix of the kernel's struct for this kind of object.
///
/// # Safety
/// Every address in `info` is valid for as many bytes as `info` gives with it.
unsafe fn info<I>(of: BorrowedFd<'_>, info: &mut I) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        length: u32,
        info: u64,
    }
    let mut attr = Attr {
        fd: number(of),
        length: size_of::<I>() as u32,
        info: std::ptr::from_mut(info) as u64,
    };
    // SAFETY: the kernel writes no more than `length` bytes to `info`; the addresses inside are the
    // caller's promise.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr).map(|_| ()) }
}

pub(super) fn program(of: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    // struct bpf_prog_info up to its name.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        kind: u32,
        id: u32,
        tag: [u8; 8],
        lengths: [u32; 2],
        instructions: [u64; 2],
        load_time: u64,
        user: u32,
        map_count: u32,
        maps: u64,
        name: [u8; 16],
    }
    // Ours have at most five.
    let mut maps = vec![0u32; 16];
    let mut found =
        Info { map_count: maps.len() as u32, maps: maps.as_mut_ptr() as u64, ..Info::default() };
    // SAFETY: `maps` has room for as many ids as are told; no other address is set.
    unsafe { info(of, &mut found)? };
    maps.truncate(found.map_count as usize);
    let Info { kind, id, tag, user, name, .. } = found;
    Ok(ProgramInfo { kind, id, tag, user, maps, name })
}

/// The map's id and shape.
pub(super) fn map(of: BorrowedFd<'_>) -> io::Result<(u32, MapShape)> {
    // struct bpf_map_info up to its name.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        kind: u32,
        id: u32,
        key: u32,
        value: u32,
        entries: u32,
        flags: u32,
        name: [u8; 16],
    }
    let mut found = Info::default();
    // SAFETY: no addresses in it.
    unsafe { info(of, &mut found)? };
    let Info { kind, id, key, value, entries, flags, name } = found;
    Ok((id, MapShape { kind, key, value, entries, flags, name }))
}

/// None: the link is of another kind, or the tracepoint's name is longer than any of ours.
pub(super) fn link(of: BorrowedFd<'_>) -> io::Result<Option<LinkInfo>> {
    // struct bpf_link_info with its member for raw tracepoints.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        kind: u32,
        id: u32,
        program: u32,
        padding: u32,
        name: u64,
        name_length: u32,
        end: u32,
    }
    // In links of other kinds these members have other meanings, and may be addresses too: the
    // first call sets none.
    let mut found = Info::default();
    // SAFETY: no addresses in it.
    unsafe { info(of, &mut found)? };
    if found.kind != LINK_RAW_TRACEPOINT {
        return Ok(None);
    }
    let mut tracepoint = [0u8; 32];
    let mut found = Info {
        name: tracepoint.as_mut_ptr() as u64,
        name_length: tracepoint.len() as u32,
        ..Info::default()
    };
    // SAFETY: `tracepoint` has as many bytes as are told.
    match unsafe { info(of, &mut found) } {
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return Ok(None),
        done => done?,
    }
    Ok(Some(LinkInfo { id: found.id, program: found.program, tracepoint }))
}
