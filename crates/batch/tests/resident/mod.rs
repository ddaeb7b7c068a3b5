//! Files that stay in memory.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Keeps the contents of a file in memory. A batched read does not wait for the disk: of a page
/// that memory pressure has just taken away it says EAGAIN, and a plain read of the same does not.
pub struct Resident {
    map: *mut libc::c_void,
    len: usize,
}

impl Resident {
    /// Of all that the file contains now.
    pub fn of(file: &File) -> Resident {
        let len = file.metadata().unwrap().len() as usize;
        // SAFETY: a new mapping of a file, which nobody reads through it.
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
            // What is mapped is not dropped with the page cache, what is locked is not taken under
            // pressure either; RLIMIT_MEMLOCK may forbid the second.
            let _ = libc::mlock(map, len);
            Resident { map, len }
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // SAFETY: made by `of`, and nobody else has it.
        unsafe { libc::munmap(self.map, self.len) };
    }
}
