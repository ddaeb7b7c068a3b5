//! Guards: pages below each stack that no access reaches.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{Class, page_size};

const MADV_GUARD_INSTALL: libc::c_int = 102;
/// The calling process, for `process_madvise` (Linux 6.14). A real pidfd would still refer to the
/// parent after fork.
const PIDFD_SELF: libc::c_long = -10001;
const IOV_MAX: usize = 1024;

/// How guards are made: 0 is undecided, then from best to last resort. The value only rises.
static GUARD_HOW: AtomicU8 = AtomicU8::new(0);
const VECTORED: u8 = 1;
const SINGLE: u8 = 2;
const MPROTECT: u8 = 3;

/// Returns the name of the method that makes guards on this machine, for reports.
pub fn guard_kind() -> &'static str {
    match guard_how() {
        VECTORED => "MADV_GUARD_INSTALL, batched",
        SINGLE => "MADV_GUARD_INSTALL",
        _ => "mprotect",
    }
}

fn guard_how() -> u8 {
    match GUARD_HOW.load(Ordering::Relaxed) {
        0 => {
            let asked = kumihimo_config::get().lab.guard;
            let forced = asked == Some(kumihimo_config::Guard::Mprotect);
            let how = if forced { MPROTECT } else { probe_guard() };
            GUARD_HOW.fetch_max(how, Ordering::Relaxed);
            GUARD_HOW.load(Ordering::Relaxed)
        }
        how => how,
    }
}

/// Tries the methods on a page of its own.
fn probe_guard() -> u8 {
    let bytes = page_size();
    // SAFETY: maps, advises and unmaps a private page to which nothing else refers.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return SINGLE;
        }
        let iov = libc::iovec { iov_base: page, iov_len: bytes };
        let advised = if process_madvise(&[iov]) == bytes.cast_signed() {
            VECTORED
        } else if libc::madvise(page, bytes, MADV_GUARD_INSTALL) == 0 {
            SINGLE
        } else {
            MPROTECT
        };
        let how = if is_readable(page) { MPROTECT } else { advised };
        libc::munmap(page, bytes);
        how
    }
}

/// Returns whether the kernel can read at `address`: whether advice to guard it had no effect.
/// qemu-user accepts advice that it does not know.
fn is_readable(address: *const libc::c_void) -> bool {
    let name = [crate::kernel::Argument::word(address), 0, 0, 0, 0, 0];
    // SAFETY: chdir(2) reads a string. That of a new page is empty, which is not found.
    let done = unsafe { crate::system_call(libc::SYS_chdir, name) };
    done != -(libc::EFAULT as isize)
}

fn process_madvise(iov: &[libc::iovec]) -> isize {
    // SAFETY: the vector is valid for the call. Guard advice only removes access to the named
    // ranges, which the callers own.
    unsafe {
        crate::call!(
            libc::SYS_process_madvise,
            PIDFD_SELF,
            iov.as_ptr(),
            iov.len(),
            MADV_GUARD_INSTALL as libc::c_long,
            0,
        ) as isize
    }
}

/// Makes the guards of `count` slots starting at `first`, and returns how many it made.
pub(super) fn guard(class: Class, first: usize, count: usize) -> io::Result<usize> {
    let size = class.guard_size();
    let at = |i: usize| (first + i * class.slot_size()) as *mut libc::c_void;
    let mut done = 0;
    if guard_how() == VECTORED {
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: size }; 64];
        const { assert!(64 <= IOV_MAX) };
        while done < count {
            let n = (count - done).min(iov.len());
            for (i, v) in iov[..n].iter_mut().enumerate() {
                v.iov_base = at(done + i);
            }
            let bytes = process_madvise(&iov[..n]);
            if bytes <= 0 {
                break;
            }
            done += bytes as usize / size;
            if (bytes as usize) < n * size {
                break;
            }
        }
    }
    while done < count {
        // SAFETY: the range is the guard of a slot that is not handed out yet.
        let r = unsafe {
            if guard_how() == MPROTECT {
                libc::mprotect(at(done), size, libc::PROT_NONE)
            } else {
                libc::madvise(at(done), size, MADV_GUARD_INSTALL)
            }
        };
        if r == 0 {
            done += 1;
            continue;
        }
        let err = io::Error::last_os_error();
        if guard_how() != MPROTECT && err.raw_os_error() == Some(libc::EINVAL) {
            GUARD_HOW.fetch_max(MPROTECT, Ordering::Relaxed);
            continue;
        }
        if done > 0 {
            break;
        }
        return Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "cannot make the guard of a stack ({}, {size} bytes): {err}; raise vm.max_map_count \
                 (each stack needs two mappings here) or start fewer microprocesses",
                guard_kind()
            ),
        ));
    }
    Ok(done)
}
