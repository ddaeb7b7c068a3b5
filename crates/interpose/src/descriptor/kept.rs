//! The runtime's own descriptors: epoll sets, eventfds, timers, performance events, BPF objects.
//!
//! A program that closes all descriptors before it goes on (a daemon, a shell) means its own. For
//! it the numbers of the runtime are not open.
//!
//! A descriptor is the runtime's if its file is of one of these types, the program has not made it,
//! and it was not open when the runtime started.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;

use crate::descriptor::{table, transfer};
use crate::real::libc;
use crate::start::phase;

/// What proc(5) shows for the files of the types that the runtime uses.
const TYPES: [&[u8]; 6] = [
    b"anon_inode:[eventpoll]",
    b"anon_inode:[eventfd]",
    b"anon_inode:[timerfd]",
    b"anon_inode:[perf_event]",
    b"anon_inode:[io_uring]",
    b"anon_inode:bpf",
];

/// Notes that what is open now is the program's. Called before the runtime starts.
pub(crate) fn note_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    for fd in open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()) {
        if is_of_own_type(fd) {
            table::made(fd);
        }
        if !table::is_programs(fd) {
            transfer::note_foreign(fd);
        }
    }
}

fn is_of_own_type(fd: c_int) -> bool {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // Most files have a type, and these have none: asked first, because it costs less.
    // SAFETY: a live structure; all zeroes are a valid value.
    let has_no_type = unsafe {
        libc::fstat(fd, found.as_mut_ptr()) == 0 && found.assume_init().st_mode & libc::S_IFMT == 0
    };
    if !has_no_type {
        return false;
    }
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
    phase::has_started() && !table::is_programs(fd) && is_of_own_type(fd)
}
