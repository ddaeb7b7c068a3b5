//! The report of `kumi run --report FILE`: a line for each program, with its numbers of threads.
//!
//! The line is a part of the file that the process has mapped (mmap(2)), and its numbers are
//! digits that change in place. So the line is right at each moment, however the process ends:
//! _exit(2), a signal that kills it, and execve(2) included. No descriptor stays open, and a
//! process that gives up its rights after its start keeps the line.
//!
//! Children of fork(2) share the mapping, and count in the line of their parent.

use crate::real::libc;
use std::fs::{self, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of each line. A power of two up to the size of a page, so that no line is in two pages.
const LINE: usize = 128;
const PAGE: usize = 4096;
/// Where the number of threads is in a line, in bytes. That of microprocesses is at its beginning.
const ALL: usize = 16;

/// Both numbers of this process, in the mapping.
struct Line {
    microprocesses: NonNull<AtomicU64>,
    all: NonNull<AtomicU64>,
}

// SAFETY: the mapping is never removed, and both are atomic.
unsafe impl Send for Line {}
// SAFETY: as above.
unsafe impl Sync for Line {}

static OWN: OnceLock<Line> = OnceLock::new();

/// Adds a line for this program to the file at `path`.
pub(crate) fn begin(path: &std::path::Path) {
    match append(path) {
        Ok(line) => drop(OWN.set(line)),
        Err(error) => eprintln!("kumi run: {}: {error}; no report", path.display()),
    }
}

/// Counts a thread, if there is a report.
pub(crate) fn add(is_microprocess: bool) {
    let Some(line) = OWN.get() else { return };
    if is_microprocess {
        // SAFETY: the mapping is never removed.
        increment(unsafe { line.microprocesses.as_ref() });
    }
    // SAFETY: as above.
    increment(unsafe { line.all.as_ref() });
}

fn append(path: &std::path::Path) -> io::Result<Line> {
    // `kumi run` has created it. A program that changes its root does not see it.
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    // One write at the end of the file, so lines of other processes stay whole (write(2)).
    file.write_all(&text(std::process::id(), name.trim_end()))?;
    let end = usize::try_from(file.stream_position()?).map_err(io::Error::other)?;
    let at = end.checked_sub(LINE).filter(|at| at.is_multiple_of(LINE));
    let at = at.ok_or_else(|| io::Error::other("it has lines of something else"))?;
    let (page, within) = (at - at % PAGE, at % PAGE);
    // SAFETY: a new mapping.
    let mapped = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            page as libc::off_t,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the line is within the page.
    let line = unsafe { mapped.cast::<u8>().add(within) };
    let number = |offset| {
        // SAFETY: within the line, and a multiple of eight bytes from its beginning.
        NonNull::new(unsafe { line.add(offset) }.cast::<AtomicU64>()).expect("a mapping")
    };
    Ok(Line { microprocesses: number(0), all: number(ALL) })
}

/// The line of a process that has no threads yet.
fn text(process: u32, name: &str) -> [u8; LINE] {
    let start = format!(
        "00000000 of the 00000000 threads of process {process} ({name}) were microprocesses"
    );
    let mut line = [b' '; LINE];
    // A name has up to 15 bytes (proc_pid_comm(5)), so the text fits.
    let length = start.len().min(LINE - 1);
    line[..length].copy_from_slice(&start.as_bytes()[..length]);
    line[LINE - 1] = b'\n';
    line
}

/// Adds one to a number of eight decimal digits. The greatest one stays.
fn increment(digits: &AtomicU64) {
    // Relaxed: nothing else is published by it.
    let _ = digits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
        let mut digits = now.to_ne_bytes();
        for digit in digits.iter_mut().rev() {
            if *digit != b'9' {
                *digit += 1;
                return Some(u64::from_ne_bytes(digits));
            }
            *digit = b'0';
        }
        None
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_counted() {
        let digits = |text: &[u8; 8]| AtomicU64::new(u64::from_ne_bytes(*text));
        for (before, after) in
            [(b"00000000", b"00000001"), (b"00000999", b"00001000"), (b"99999999", b"99999999")]
        {
            let number = digits(before);
            increment(&number);
            assert_eq!(&number.into_inner().to_ne_bytes(), after);
        }
    }

    #[test]
    fn longest_line_ends_with_its_newline() {
        let line = text(u32::MAX, "name-of-15-byte");
        assert!(line.ends_with(b" \n"));
        assert_eq!(&line[ALL..ALL + 8], b"00000000");
    }
}
