//! A report of system calls that the program makes without the C library: nothing replaces them, so
//! a microprocess that waits in one has a kernel thread of its own.
//!
//! The runtime's timekeeper has a thread looked at whose microprocess often blocks in unknown calls
//! (`Look`). Such a thread is in the C library, in the runtime ([`is_in_system_call`]), or in code
//! of the program, which is reported once.
//!
//! The timekeeper must not wait for what a preempted thread of the program may hold, so nothing
//! here allocates or takes a lock.

use std::ffi::{CStr, c_int, c_long};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use kumihimo_arch::{call, is_in_system_call, kernel};
use kumihimo_runtime::linked::look_at_unknown_waits;

use crate::real::libc;
use crate::start::phase;

/// The times that threads are looked at: ten seconds of those in which one is.
const LOOKS: u32 = 1000;

/// System calls that wait, with their names. Those of files are none: Kumihimo's own files make
/// system calls without the C library, too.
const WAITS: [(c_long, &str); 24] = [
    (libc::SYS_futex, "futex"),
    (libc::SYS_poll, "poll"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_select, "select"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_epoll_pwait2, "epoll_pwait2"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_read, "read"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
];
/// From here on, those of [`WAITS`] also read and write files.
const MAY_BE_FILES: usize = 20;

/// Objects of the C library, by the beginnings of their names.
const OWN_OBJECTS: [&[u8]; 6] =
    [b"libc.so", b"libc-", b"ld-linux", b"ld-", b"libpthread", b"libkumihimo_"];

/// Has threads looked at.
pub(crate) fn begin() {
    look_at_unknown_waits(look);
}

fn look(thread: u32) -> bool {
    static LOOKED: AtomicU32 = AtomicU32::new(0);
    // The end of the code of the C library that was found last, and its beginning.
    static KNOWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let looked = LOOKED.load(Ordering::Relaxed);
    if looked >= LOOKS {
        return false;
    }
    // A program may have several timekeepers: a look more or less does not matter.
    LOOKED.store(looked + 1, Ordering::Relaxed);
    let mut room = [0; 256];
    let wait = Wait::of(thread, &mut room).filter(|wait| {
        let known = KNOWN.each_ref().map(|address| address.load(Ordering::Relaxed));
        !is_in_system_call(wait.counter) && !(known[0]..known[1]).contains(&wait.counter)
    });
    let place = wait.and_then(|wait| Some((Place::of(wait.counter)?, wait)));
    let is_program = place.as_ref().is_some_and(|(place, wait)| {
        if place.is_program() {
            place.report(wait);
            return true;
        }
        KNOWN[0].store(place.code[0], Ordering::Relaxed);
        KNOWN[1].store(place.code[1], Ordering::Relaxed);
        false
    });
    if is_program {
        LOOKED.store(LOOKS, Ordering::Relaxed);
    }
    !is_program
}

/// A system call in which a thread waits.
#[derive(Debug, PartialEq, Eq)]
struct Wait {
    name: &'static str,
    counter: usize,
}

impl Wait {
    /// The wait of a thread of this process, if it is in one that may be for long.
    fn of(thread: u32, room: &mut [u8]) -> Option<Wait> {
        let mut path = Text::new();
        let _ = write!(path, "/proc/self/task/{thread}/syscall\0");
        let file = File::open(path.c_str()?)?;
        let length = file.read(room)?;
        let (wait, descriptor) = parse(std::str::from_utf8(&room[..length]).ok()?)?;
        let is_file = descriptor.is_some_and(|descriptor| {
            let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: room for it, which a successful call writes.
            unsafe {
                libc::fstat(descriptor, status.as_mut_ptr()) != 0
                    || matches!(
                        status.assume_init().st_mode & libc::S_IFMT,
                        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK
                    )
            }
        });
        (!is_file).then_some(wait)
    }
}

/// Reads a line of proc_pid_syscall(5). Returns the wait and, where it may be one for a file, the
/// descriptor.
fn parse(line: &str) -> Option<(Wait, Option<c_int>)> {
    let mut words = line.split_ascii_whitespace();
    let number: c_long = words.next()?.parse().ok()?;
    let hex = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let first = hex(words.next()?)?;
    let counter = hex(words.next_back()?)?;
    let at = WAITS.iter().position(|(wait, _)| *wait == number)?;
    let descriptor = (at >= MAY_BE_FILES).then_some(first as c_int);
    Some((Wait { name: WAITS[at].1, counter }, descriptor))
}

/// Where code is.
struct Place {
    /// Beginning and end of its mapping.
    code: [usize; 2],
    /// The code's address as the object file has it, unless that is for a fixed address.
    address: usize,
    object: Text,
}

impl Place {
    /// Finds the object that has code at `counter`.
    fn of(counter: usize) -> Option<Place> {
        let file = File::open(c"/proc/self/maps")?;
        let (mut room, mut filled) = ([0; 4096], 0);
        let mut first = 0;
        loop {
            let read = file.read(&mut room[filled..])?;
            if read == 0 {
                return None;
            }
            filled += read;
            let mut begin = 0;
            while let Some(length) = room[begin..filled].iter().position(|byte| *byte == b'\n') {
                let line = &room[begin..begin + length];
                begin += length + 1;
                let Some(mapping) = Mapping::of(line) else { continue };
                if mapping.offset == 0 {
                    first = mapping.code[0];
                }
                if (mapping.code[0]..mapping.code[1]).contains(&counter) {
                    let mut object = Text::new();
                    object.append(mapping.object);
                    return Some(Place { code: mapping.code, address: counter - first, object });
                }
            }
            room.copy_within(begin..filled, 0);
            filled -= begin;
        }
    }

    fn is_program(&self) -> bool {
        let path = self.object.bytes();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        !name.starts_with(b"[") && !OWN_OBJECTS.iter().any(|own| name.starts_with(own))
    }

    fn report(&self, wait: &Wait) {
        let caller = if phase::is_linked() { "kumihimo" } else { "kumi run" };
        let Wait { name, .. } = wait;
        let mut line = Text::new();
        let _ = write!(line, "{caller}: ");
        line.append(self.object.bytes());
        let _ = writeln!(
            line,
            " makes system calls without the C library ({name}, at {:#x}): a microprocess that waits there keeps a kernel thread; let it call the C library (rustix: feature use-libc), or use kumihimo's functions",
            self.address,
        );
        let text = line.bytes();
        // SAFETY: live bytes.
        unsafe { kernel::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

/// A line of proc_pid_maps(5).
struct Mapping<'a> {
    code: [usize; 2],
    offset: usize,
    object: &'a [u8],
}

impl Mapping<'_> {
    fn of(line: &[u8]) -> Option<Mapping<'_>> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let hex = |word: &[u8]| usize::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok();
        let mut addresses = words.next()?.split(|byte| *byte == b'-');
        let code = [hex(addresses.next()?)?, hex(addresses.next()?)?];
        let offset = hex(words.nth(1)?)?;
        Some(Mapping { code, offset, object: words.nth(2)?.trim_ascii() })
    }
}

/// An open file.
struct File(c_int);

impl File {
    fn open(path: &CStr) -> Option<File> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: a string that ends with NUL.
        let fd = unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        (fd >= 0).then_some(File(fd as c_int))
    }

    fn read(&self, to: &mut [u8]) -> Option<usize> {
        // SAFETY: as much room.
        usize::try_from(unsafe { kernel::read(self.0, to.as_mut_ptr().cast(), to.len()) }).ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: its own.
        unsafe { kernel::close(self.0) };
    }
}

/// A text of bounded length. What is beyond it is left out.
struct Text {
    bytes: [u8; 768],
    length: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; 768], length: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes()).ok()
    }

    fn append(&mut self, more: &[u8]) {
        let length = more.len().min(self.bytes.len() - self.length);
        self.bytes[self.length..self.length + length].copy_from_slice(&more[..length]);
        self.length += length;
    }
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        self.append(more.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "7 0x7ffc12 0x1 0xffffffff 0x0 0x0 0x0 0x7ffc00 0x7f0012\n";
        assert_eq!(parse(line), Some((Wait { name: "poll", counter: 0x7f_0012 }, None)));
        let line = "0 0x5 0x1 0x10 0x0 0x0 0x0 0x7ffc00 0x7f0012";
        assert_eq!(parse(line), Some((Wait { name: "read", counter: 0x7f_0012 }, Some(5))));
        for other in ["running\n", "-1 0x7ffc00 0x7f0012", "39 0x0 0x1 0x2", "", "7", "7 x y"] {
            assert_eq!(parse(other), None, "{other}");
        }
        let mapping = Mapping::of(b"7f00-7f80 r-xp 00001000 fe:00 12   /usr/lib/a b").expect("one");
        assert_eq!((mapping.code, mapping.offset), ([0x7f00, 0x7f80], 0x1000));
        assert_eq!(mapping.object, b"/usr/lib/a b");
        assert!(Mapping::of(b"7f00-7f80 r-xp").is_none());
    }

    #[test]
    fn place_of_code_is_found() {
        let own = Place::of(place_of_code_is_found as *const () as usize).expect("this program");
        assert!(own.is_program());
        let name = std::env::current_exe().expect("/proc");
        assert_eq!(own.object.bytes(), name.as_os_str().as_encoded_bytes());
        let library = Place::of(libc::getpid as *const () as usize).expect("the C library");
        assert!(!library.is_program());
        assert!(Place::of(1).is_none());
    }
}
