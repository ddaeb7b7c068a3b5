//! How often a process enters the kernel, counted from outside of it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where the kernel says what number the tracepoint has, below a tracefs.
const TRACEPOINT: &str = "events/raw_syscalls/sys_enter/id";
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// struct perf_event_attr as of its first version, which every kernel takes.
#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}
const _: () = assert!(size_of::<Attr>() == 64);

const PERF_TYPE_TRACEPOINT: u32 = 2;
const INHERIT: u64 = 1 << 1;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;

/// Counts the entries into the kernel by system calls of all kernel threads of a process, also of those that they make meanwhile. While it
/// lives, every system call of the machine is somewhat dearer: nothing is to be timed then.
///
/// Source: perf_event_open(2), the tracepoint `raw_syscalls:sys_enter`.
#[derive(Debug)]
pub struct Entries(Vec<OwnedFd>);

impl Entries {
    /// Begins to count those of process `pid`. One descriptor for each of its kernel threads.
    ///
    /// # Errors
    /// No such process, no right to it (CAP_PERFMON, or `perf_event_paranoid` of -1), no tracefs (mounted, or CAP_SYS_ADMIN), too few
    /// descriptors. The message says which.
    pub fn of(pid: u32) -> io::Result<Entries> {
        let number = tracepoint().map_err(|e| said("tracefs", &e))?;
        let mut counters = Vec::new();
        for thread in crate::kernel_threads(pid)? {
            match open(number, thread) {
                Ok(counter) => counters.push(counter),
                // It has ended meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(said("perf_event_open", &e)),
            }
        }
        Ok(Entries(counters))
    }

    /// Entries so far.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn count(&self) -> io::Result<u64> {
        let mut all = 0;
        for counter in &self.0 {
            let mut count = [0; 8];
            rustix::io::read(counter, &mut count)?;
            all += u64::from_ne_bytes(count);
        }
        Ok(all)
    }
}

fn said(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The tracepoint's number. Where no tracefs is mounted, one is looked at that is mounted nowhere.
fn tracepoint() -> io::Result<u64> {
    let text = match MOUNTED.iter().find_map(|at| fs::read_to_string(format!("{at}/{TRACEPOINT}")).ok()) {
        Some(text) => text,
        None => {
            let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
            let file = openat(root, TRACEPOINT, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            io::read_to_string(fs::File::from(file))?
        }
    };
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is no number")))
}

fn open(number: u64, thread: i32) -> io::Result<OwnedFd> {
    let attr = Attr {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<Attr>() as u32,
        config: number,
        sample_period: 0,
        sample_type: 0,
        read_format: 0,
        flags: INHERIT,
        wakeup_events: 0,
        bp_type: 0,
        config1: 0,
    };
    // SAFETY: `attr` lives through the call and says its own size; any core, no group.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, thread, -1, -1, PERF_FLAG_FD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's. Descriptors fit into an int.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_thousand_calls_are_a_thousand_entries() {
        let counted = match Entries::of(std::process::id()) {
            Ok(counted) => counted,
            Err(e) => {
                // Past libtest's capture: the scripts count these lines.
                let line = format!("\n[skip] a_thousand_calls_are_a_thousand_entries: {e}\n");
                return io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            }
        };
        let before = counted.count().unwrap();
        // A kernel thread that is made meanwhile counts too. (libtest's own may make calls at any time.)
        std::thread::spawn(|| (0..1_000).for_each(|_| _ = rustix::process::getppid())).join().unwrap();
        let after = counted.count().unwrap();
        assert!((1_000..2_000).contains(&(after - before)), "{}", after - before);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Entries::of(u32::MAX).is_err());
    }
}
