//! Files that stay in memory.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Keeps the contents of a file in memory. A batched read does not wait for the disk. It fails with
/// EAGAIN for a page that memory pressure has just evicted, where a plain read succeeds.
pub struct Resident {
    map: *mut libc::c_void,
    len: usize,
}

impl Resident {
    /// Keeps the present contents of `file` in memory.
    pub fn of(file: &File) -> Resident {
        let len = file.metadata().unwrap().len() as usize;
        // SAFETY: a new mapping of a file; no code reads through it.
        unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(map, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            // Mapped pages are not dropped with the page cache, and locked pages are not evicted
            // under memory pressure. RLIMIT_MEMLOCK may forbid the lock.
            let _ = libc::mlock(map, len);
            Resident { map, len }
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `of`, which has no other owner.
        unsafe { libc::munmap(self.map, self.len) };
    }
}
