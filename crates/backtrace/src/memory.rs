//! Reads this process's memory without faults.

use std::ffi::c_void;

/// Copies the memory from `at` on into `out`, as far as it is mapped. Returns the number of bytes
/// copied: 0 if the address is not mapped.
///
/// The kernel copies (process_vm_readv(2), or /proc/self/mem if that is refused), so that neither
/// unmapped pages nor concurrent changes cause a fault. Async-signal-safe, except that it changes
/// errno. Blocks the kernel thread, for a page fault at most.
#[must_use]
pub fn copy(at: usize, out: &mut [u8]) -> usize {
    by_call(at, out).or_else(|| by_file(at, out)).unwrap_or(0)
}

/// Returns `None` if the system call is refused (seccomp(2), old kernels).
fn by_call(at: usize, out: &mut [u8]) -> Option<usize> {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut::<c_void>(at),
        iov_len: out.len(),
    };
    // SAFETY: the local range belongs to the caller; the kernel checks the remote one.
    let n = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    match usize::try_from(n) {
        Ok(n) => Some(n),
        Err(_)
            if matches!(
                std::io::Error::last_os_error().raw_os_error(),
                Some(libc::EPERM | libc::ENOSYS)
            ) =>
        {
            None
        }
        Err(_) => Some(0),
    }
}

/// Returns `None` without procfs.
fn by_file(at: usize, out: &mut [u8]) -> Option<usize> {
    let offset = libc::off_t::try_from(at).ok()?;
    // SAFETY: a path and flags. Not by std, which may allocate.
    let file = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: as many live bytes; a descriptor that only this function uses.
    let n = unsafe {
        let n = libc::pread(file, out.as_mut_ptr().cast(), out.len(), offset);
        kumihimo_arch::kernel::close(file);
        n
    };
    Some(usize::try_from(n).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_memory_reads_as_absent_without_a_fault() {
        for way in [by_call, by_file] {
            let (mut out, here) = ([0u8; 32], [7u64; 4]);
            assert_eq!(way(here.as_ptr().addr(), &mut out), Some(32));
            assert_eq!(out[8..16], 7u64.to_le_bytes());
            assert_eq!(way(16, &mut out), Some(0));
        }
    }

    #[test]
    fn read_stops_at_the_end_of_mapped_memory() {
        // SAFETY: two new pages; the second one is then made inaccessible.
        let page = unsafe {
            let two = libc::mmap(
                std::ptr::null_mut(),
                8192,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(two, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(two.byte_add(4096), 4096, libc::PROT_NONE), 0);
            two
        };
        let mut out = [1; 8192];
        assert_eq!(by_call(page.addr() + 96, &mut out), Some(4000));
        assert_eq!((out[3999], out[4000]), (0, 1));
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(page, 8192) };
    }
}
