//! Page faults that wait for a disk or for another thread or process, and reads of such files.

use std::ffi::{c_int, c_ulong, c_void};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::case::{case, seen};
use crate::fuse::{DATA, LENGTH, Slow, byte};

unsafe extern "C" {
    fn c_faults(at: *mut c_void, bytes: c_ulong) -> c_int;
    fn c_answer_fault(fd: c_int, to: *mut c_void, from: *const c_void, bytes: c_ulong) -> c_int;
}

const PAGE: usize = 4096;

/// Mapped pages, unmapped when dropped.
struct Pages {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: an ordinary memory mapping.
unsafe impl Send for Pages {}
// SAFETY: only read through this value. The kernel fills a page before it becomes visible.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps a file, or anonymous memory. The mapping is private and never written to.
    fn map(bytes: usize, file: Option<&File>) -> Pages {
        let (flags, fd) = file.map_or((libc::MAP_ANONYMOUS, -1), |file| (0, file.as_raw_fd()));
        // SAFETY: a fresh mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | flags,
                fd,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Pages { at: at.cast(), bytes }
    }

    fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes);
        // SAFETY: mapped and in bounds. Volatile, because the access itself matters.
        unsafe { self.at.add(offset).read_volatile() }
    }

    /// One byte of each page.
    fn sample(&self) -> Vec<u8> {
        (0..self.bytes).step_by(PAGE).map(|offset| self.read(offset)).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no pointer into it is left.
        assert_eq!(unsafe { libc::munmap(self.at.cast(), self.bytes) }, 0);
    }
}

/// One byte of each page of a file of bytes.
fn sampled(bytes: usize) -> Vec<u8> {
    (0..bytes).step_by(PAGE).map(byte).collect()
}

/// Number of this process's page faults that waited for a disk.
fn major_faults() -> i64 {
    // SAFETY: all zeroes is a value; a live one to fill in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    usage.ru_majflt
}

#[test]
fn page_fault_served_from_disk_stalls_no_one() {
    const NAME: &str = "faults::page_fault_served_from_disk_stalls_no_one";
    const BYTES: usize = 8 << 20;
    case(NAME, |case| {
        // On a disk, which /tmp may not be.
        let dir = "/var/tmp";
        let path = format!("{dir}/kumihimo-events-{}", std::process::id());
        let mut file =
            File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("it is there");
        file.write_all(&(0..BYTES).map(byte).collect::<Vec<_>>()).expect("room");
        file.sync_all().expect("written");
        let pages = Pages::map(BYTES, Some(&file));
        // SAFETY: integers; a mapping; room for one byte a page.
        let cached = unsafe {
            assert_eq!(libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED), 0);
            // No readahead, so that each page is a fault.
            assert_eq!(libc::madvise(pages.at.cast(), BYTES, libc::MADV_RANDOM), 0);
            let mut state = vec![0u8; BYTES / PAGE];
            assert_eq!(libc::mincore(pages.at.cast(), BYTES, state.as_mut_ptr()), 0);
            state.iter().filter(|state| **state & 1 != 0).count()
        };
        if cached == BYTES / PAGE {
            return case.skip(&format!("{dir}: the file system does not drop its pages (tmpfs?)"));
        }
        let (got, faults) = case.beside(move || {
            let before = major_faults();
            (pages.sample(), major_faults() - before)
        });
        assert!(got == sampled(BYTES), "wrong bytes");
        seen(NAME, "majflt", faults);
        assert!(
            faults > 0,
            "{} pages were not in memory, but none was fetched from disk",
            BYTES / PAGE - cached
        );
    });
}

#[test]
fn page_fault_served_by_userfaultfd_stalls_no_one() {
    case("faults::page_fault_served_by_userfaultfd_stalls_no_one", |case| {
        const BYTES: usize = 4 * PAGE;
        let pages = std::sync::Arc::new(Pages::map(BYTES, None));
        // SAFETY: a mapping.
        let fd = unsafe { c_faults(pages.at.cast(), BYTES as c_ulong) };
        if fd < 0 {
            return case.skip(&format!("userfaultfd: {}", std::io::Error::from_raw_os_error(-fd)));
        }
        // SAFETY: fresh.
        let faults = unsafe { OwnedFd::from_raw_fd(fd) };
        let to = pages.clone();
        let got = case.blocked(
            move || pages.sample(),
            move || {
                let from = Pages::map(BYTES, None);
                // SAFETY: both mapped.
                unsafe {
                    assert_eq!(
                        libc::mprotect(from.at.cast(), BYTES, libc::PROT_READ | libc::PROT_WRITE),
                        0
                    );
                    for offset in 0..BYTES {
                        from.at.add(offset).write(byte(offset));
                    }
                }
                let fd = faults.as_raw_fd();
                // SAFETY: both mapped, of that length.
                let r =
                    unsafe { c_answer_fault(fd, to.at.cast(), from.at.cast(), BYTES as c_ulong) };
                assert_eq!(r, 0, "{}", std::io::Error::from_raw_os_error(r));
            },
        );
        assert_eq!(got, sampled(BYTES));
    });
}

/// Runs `call` on the slow file. It blocks until the file system replies.
fn slow<T: Send + 'static>(name: &'static str, call: fn(File, Pages) -> T, check: fn(T)) {
    case(name, |case| {
        let mut slow = match Slow::mount(name) {
            Ok(slow) => slow,
            Err(why) => return case.skip(&why),
        };
        let file = File::open(DATA).expect("it is there");
        let pages = Pages::map(LENGTH, Some(&file));
        check(case.blocked(move || call(file, pages), slow.release()));
    });
}

#[test]
fn page_fault_served_by_fuse_stalls_no_one() {
    slow(
        "faults::page_fault_served_by_fuse_stalls_no_one",
        |_, pages| pages.sample(),
        |got| assert_eq!(got, sampled(LENGTH)),
    );
}

#[test]
fn read_served_by_fuse_stalls_no_one() {
    slow(
        "faults::read_served_by_fuse_stalls_no_one",
        |mut file, _| {
            let mut all = vec![0; LENGTH];
            file.read(&mut all).map(|n| (n, all))
        },
        |got| {
            let (n, all) = got.expect("no EINTR");
            assert_eq!(n, LENGTH, "no short read");
            assert!(all.iter().enumerate().all(|(at, got)| *got == byte(at)));
        },
    );
}

#[test]
fn page_fault_inside_a_system_call_stalls_no_one() {
    slow(
        "faults::page_fault_inside_a_system_call_stalls_no_one",
        |_, pages| {
            let (mut reader, writer) = std::io::pipe().expect("a pipe");
            // SAFETY: mapped. The pages are provided while the kernel copies from them.
            let n = unsafe { libc::write(writer.as_raw_fd(), pages.at.cast(), pages.bytes) };
            drop(writer);
            let mut all = Vec::new();
            reader.read_to_end(&mut all).expect("the end");
            (n, all)
        },
        |(n, all)| {
            assert_eq!((n, all.len()), (LENGTH as isize, LENGTH), "no short write");
            assert!(all.iter().enumerate().all(|(at, got)| *got == byte(at)));
        },
    );
}
