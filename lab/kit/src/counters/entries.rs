//! How often a process enters the kernel, counted from outside of it.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::counter::{Counter, INHERIT, TRACEPOINT};

/// Where the kernel says what number the tracepoint has, below a tracefs.
const TRACEPOINT_ID: &str = "events/raw_syscalls/sys_enter/id";
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Counts the entries into the kernel by system calls of all kernel threads of a process, also of
/// those that they make meanwhile. While it lives, every system call of the machine is somewhat
/// dearer: nothing is to be timed then.
///
/// Source: perf_event_open(2), the tracepoint `raw_syscalls:sys_enter`.
#[derive(Debug)]
pub struct Entries(Vec<Counter>);

impl Entries {
    /// Begins to count those of process `pid`. One descriptor for each of its kernel threads.
    ///
    /// # Errors
    /// No such process, no right to it (CAP_PERFMON, or `perf_event_paranoid` of -1), no tracefs
    /// (mounted, or CAP_SYS_ADMIN), too few descriptors. The message says which.
    pub fn of(pid: u32) -> io::Result<Entries> {
        let number = tracepoint().map_err(|e| said("tracefs", &e))?;
        let mut counters = Vec::new();
        for thread in super::kernel_threads(pid)? {
            match Counter::open(TRACEPOINT, number, INHERIT, thread) {
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
        self.0.iter().map(Counter::read).sum()
    }
}

fn said(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The tracepoint's number. Where no tracefs is mounted, one is looked at that is mounted nowhere.
fn tracepoint() -> io::Result<u64> {
    let text = match MOUNTED
        .iter()
        .find_map(|at| fs::read_to_string(format!("{at}/{TRACEPOINT_ID}")).ok())
    {
        Some(text) => text,
        None => {
            let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            let root =
                fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
            let file =
                openat(root, TRACEPOINT_ID, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            io::read_to_string(fs::File::from(file))?
        }
    };
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is no number")))
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
        // A kernel thread that is made meanwhile counts too. (libtest's own may make calls at any
        // time.)
        std::thread::spawn(|| (0..1_000).for_each(|_| _ = rustix::process::getppid()))
            .join()
            .unwrap();
        let after = counted.count().unwrap();
        assert!((1_000..2_000).contains(&(after - before)), "{}", after - before);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Entries::of(u32::MAX).is_err());
    }
}
