//! Individual checks in the examination of the C library.

use std::io;

use super::donor::{self, Donor};
use super::failure::Failure;
use super::glibc::{self, Calls, Layout};

/// Creates three donors, the first two of which should be neighbours on the C library's list.
/// Another thread may come between them, so this tries again, up to eight times.
pub(super) fn models(calls: &Calls, layout: &Layout) -> Result<[Donor; 3], Failure> {
    let make =
        |size| donor::make_model(calls, layout, size).map_err(|e| Failure::of("a donor", &e));
    // The C library takes the storage of all libraries from the stack.
    let storage = (layout.statics.len()).next_multiple_of(crate::stack::page_size());
    let least = donor::least_stack().max(64 << 10);
    let [a, b, c] = [0, 8 << 10, 20 << 10].map(|more| least + more + storage);
    let mut d = [make(a)?, make(b)?, make(c)?];
    for _ in 0..8 {
        // SAFETY: donors are never freed.
        let next = unsafe { glibc::word(d[1].fs, layout.list) };
        if next == d[0].fs.wrapping_offset(layout.list) as u64 {
            break;
        }
        d = [d[1], d[2], make(d[0].size)?];
    }
    Ok(d)
}

/// Checks that the list of robust mutexes is empty: head and the word below it point to the head.
pub(super) fn robust_list_is_known(layout: &Layout, d: &Donor) -> Result<(), String> {
    let at = d.fs.wrapping_offset(layout.robust) as u64;
    // SAFETY: the words lie in the block. `Layout::find` has checked the head, and the key tables
    // and flags lie below it.
    let known = layout.robust >= layout.thread.start + 8
        && unsafe {
            glibc::word(d.fs, layout.robust) == at && glibc::word(d.fs, layout.robust - 8) == at
        };
    if known { Ok(()) } else { Err("the list of robust mutexes has an unexpected layout".into()) }
}

/// Maps memory that is never unmapped, and returns its end, which is that of a page.
pub(super) fn leaked_memory(bytes: usize) -> Result<*mut u8, Failure> {
    let bytes = bytes.next_multiple_of(crate::stack::page_size());
    // SAFETY: a new anonymous mapping.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        Err(Failure::of("mmap", &io::Error::last_os_error()))
    } else {
        Ok(p.cast::<u8>().wrapping_add(bytes))
    }
}
