//! The runtime's own descriptors: epoll sets, eventfds, performance events, BPF objects.
//!
//! A program that closes all descriptors before it goes on (a daemon, a shell) means its own. For
//! it the numbers of the runtime are not open.
//!
//! A descriptor is the runtime's if its file is of one of these types, the program has not made it,
//! and it was not open when the runtime started.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use crate::descriptor::table;
use crate::start;

/// What proc(5) shows for the files of the types that the runtime uses.
const TYPES: [&[u8]; 5] = [
    b"anon_inode:[eventpoll]",
    b"anon_inode:[eventfd]",
    b"anon_inode:[perf_event]",
    b"anon_inode:[io_uring]",
    b"anon_inode:bpf",
];

/// The files of these types that were open when the runtime started.
static INHERITED: OnceLock<Vec<c_int>> = OnceLock::new();

/// Notes what is open now. Called before the runtime starts.
pub(crate) fn note_inherited() {
    INHERITED.get_or_init(|| {
        let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
        let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter(|fd| is_of_own_type(*fd)).collect()
    });
}

fn is_of_own_type(fd: c_int) -> bool {
    let mut path = [0; 32];
    let mut target = [0u8; 64];
    // SAFETY: live buffers; the path is terminated, since it fits.
    let length = unsafe {
        libc::snprintf(path.as_mut_ptr(), path.len(), c"/proc/self/fd/%d".as_ptr(), fd);
        let path = CStr::from_ptr(path.as_ptr());
        libc::readlink(path.as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    let Ok(length) = usize::try_from(length) else { return false };
    TYPES.iter().any(|name| target[..length].starts_with(name))
}

/// Whether `fd` is the runtime's.
pub(super) fn is_kept(fd: c_int) -> bool {
    start::has_started()
        && !table::is_programs(fd)
        && !INHERITED.get().is_some_and(|inherited| inherited.contains(&fd))
        && is_of_own_type(fd)
}
