//! Major page faults: drops pages of a mapped file and touches them again.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use crate::PAGE;

/// Mapped pages of a file.
#[derive(Debug)]
pub struct Pages {
    file: File,
    from: usize,
    count: usize,
    next: usize,
    at: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value only and is only read.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `count` pages of the file, starting with page `from`.
    ///
    /// # Errors
    /// As open(2), mmap(2) and madvise(2).
    ///
    /// # Panics
    /// Never: the kernel maps nothing at address 0 unless requested.
    pub fn map(path: &Path, from: usize, count: usize) -> io::Result<Pages> {
        let file = File::open(path)?;
        // SAFETY: a new mapping at an address that the kernel chooses. The file is never truncated.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * PAGE,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                (from * PAGE) as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at: NonNull<u8> = NonNull::new(at.cast()).expect("not mapped at 0");
        // Disable readahead, which would load neighbouring pages and avoid their faults.
        // SAFETY: the whole of an own mapping.
        let done = unsafe { libc::madvise(at.as_ptr().cast(), count * PAGE, libc::MADV_RANDOM) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Pages { file, from, count, next: 0, at })
    }

    /// Drops the next page from this address space and from the page cache, so that touching it
    /// causes a major fault.
    ///
    /// # Panics
    /// If the kernel refuses to drop it.
    pub fn drop_next(&mut self) {
        self.next = (self.next + 1) % self.count;
        // SAFETY: a page of an own mapping. The contents of the file are not lost.
        let done = unsafe { libc::madvise(self.page().cast(), PAGE, libc::MADV_DONTNEED) };
        assert_eq!(done, 0, "madvise: {}", io::Error::last_os_error());
        let offset = ((self.from + self.next) * PAGE) as libc::off_t;
        // SAFETY: integers only.
        let refused = unsafe {
            libc::posix_fadvise(
                self.file.as_raw_fd(),
                offset,
                PAGE as libc::off_t,
                libc::POSIX_FADV_DONTNEED,
            )
        };
        assert_eq!(refused, 0, "posix_fadvise: {}", io::Error::from_raw_os_error(refused));
    }

    /// Touches the page that was dropped.
    #[must_use]
    pub fn touch(&self) -> u8 {
        // SAFETY: a page of an own mapping, which lives as long as this value.
        unsafe { self.page().read_volatile() }
    }

    fn page(&self) -> *mut u8 {
        // SAFETY: `next` is below the number of mapped pages.
        unsafe { self.at.as_ptr().add(self.next * PAGE) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: an own mapping that is not used any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.count * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_page_is_read_from_the_file_again() {
        let path = std::env::temp_dir().join(format!("kumihimo-pages-{}", std::process::id()));
        let bytes: Vec<u8> = (0..4 * PAGE).map(|i| (i / PAGE) as u8).collect();
        std::fs::write(&path, bytes).expect("a file");
        let mut pages = Pages::map(&path, 1, 2).expect("mapped");
        let mut seen = Vec::new();
        for _ in 0..3 {
            pages.drop_next();
            seen.push(pages.touch());
        }
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(seen, [2, 1, 2]);
    }
}
