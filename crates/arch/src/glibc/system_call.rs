//! System calls that bypass the C library.
//!
//! The program's own calls go through the C library, where [`super::interpose`] replaces what
//! concerns a single thread. The runtime's calls for its kernel threads must not be replaced. The
//! architecture's `system_call.rs` has the instructions.

use core::ffi::c_void;

unsafe extern "C" {
    fn kumihimo_system_call(
        number: i64,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
    ) -> isize;
    /// The instruction after the system call.
    static kumihimo_system_call_return: c_void;
}

/// Makes a system call and returns the kernel's result: a value, or a negated error number.
///
/// # Safety
/// The requirements of the system call. It returns on the same stack.
#[inline]
pub unsafe fn system_call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's promise.
    unsafe { kumihimo_system_call(number, a, b, c, d, e, f) }
}

/// Whether a kernel thread of this process that is in a system call with the program counter `pc`
/// (proc_pid_syscall(5)) is in [`system_call`].
#[must_use]
pub fn is_in_system_call(pc: usize) -> bool {
    pc == (&raw const kumihimo_system_call_return).expose_provenance()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixth_argument_and_error_arrive() {
        let page = crate::cpu::page_size();
        let (pages, all) = (2 * page, libc::PROT_READ as usize);
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let arguments = [0, pages, all, flags, usize::MAX, 1];
        // SAFETY: a new mapping at most. The offset, the sixth argument, is not that of a page.
        let refused = unsafe { system_call(libc::SYS_mmap, arguments) };
        assert_eq!(refused, -(libc::EINVAL as isize));
        // SAFETY: a new mapping.
        let made = unsafe { system_call(libc::SYS_mmap, [0, pages, all, flags, usize::MAX, page]) };
        assert!(made > 0, "{made}");
        // SAFETY: the mapping just made.
        assert_eq!(unsafe { system_call(libc::SYS_munmap, [made as usize, pages, 0, 0, 0, 0]) }, 0);
    }

    #[test]
    fn thread_in_a_call_is_recognised() {
        let mut ends = [0; 2];
        // SAFETY: room for both.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let (tell, told) = std::sync::mpsc::channel();
        let reads = std::thread::spawn(move || {
            // SAFETY: no arguments.
            tell.send(unsafe { system_call(libc::SYS_gettid, [0; 6]) }).expect("the test waits");
            let mut byte = 0u8;
            let at = (&raw mut byte).expose_provenance();
            // SAFETY: room for a byte.
            unsafe { system_call(libc::SYS_read, [ends[0] as usize, at, 1, 0, 0, 0]) }
        });
        let file = format!("/proc/self/task/{}/syscall", told.recv().expect("a thread"));
        let counter = loop {
            let text = std::fs::read_to_string(&file).expect("the thread is there");
            // Until it reads, it runs, or waits elsewhere.
            if text.starts_with(&format!("{} ", libc::SYS_read)) {
                let last = text.split_whitespace().next_back().expect("words");
                break usize::from_str_radix(&last[2..], 16).expect("an address");
            }
            std::thread::yield_now();
        };
        assert!(is_in_system_call(counter), "{counter:x}");
        // SAFETY: a live byte.
        assert_eq!(unsafe { libc::write(ends[1], [0u8].as_ptr().cast(), 1) }, 1);
        assert_eq!(reads.join().expect("no panic"), 1);
        // SAFETY: both are this test's.
        let _ = ends.map(|end| unsafe { libc::close(end) });
    }
}
