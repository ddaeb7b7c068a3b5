//! Counts system calls of a process from outside.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::counter::{Counter, INHERIT, TRACEPOINT};

/// File with the number of the tracepoint, relative to a tracefs.
const TRACEPOINT_ID: &str = "events/raw_syscalls/sys_enter/id";
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Counts system calls of all kernel threads of a process, including those created later. While
/// this value exists, every system call of the machine is slower, so nothing should be timed.
///
/// Source: perf_event_open(2), the tracepoint `raw_syscalls:sys_enter`.
#[derive(Debug)]
pub struct Entries(Vec<Counter>);

impl Entries {
    /// Starts to count for process `pid`. Takes one descriptor for each of its kernel threads.
    ///
    /// # Errors
    /// If there is no such process, no permission (CAP_PERFMON, or `perf_event_paranoid` of -1), no
    /// tracefs (mounted, or CAP_SYS_ADMIN), or too few descriptors. The message tells which.
    pub fn of(pid: u32) -> io::Result<Entries> {
        let number = tracepoint().map_err(|e| said("tracefs", &e))?;
        let mut counters = Vec::new();
        for thread in super::kernel_threads(pid)? {
            match Counter::open(TRACEPOINT, number, INHERIT, thread) {
                Ok(counter) => counters.push(counter),
                // The thread has ended meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(said("perf_event_open", &e)),
            }
        }
        Ok(Entries(counters))
    }

    /// System calls so far.
    ///
    /// # Errors
    /// As read(2).
    pub fn count(&self) -> io::Result<u64> {
        self.0.iter().map(Counter::read).sum()
    }
}

fn said(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Number of the tracepoint. If no tracefs is mounted, opens one without mounting it.
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
    text.trim().parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is not a number"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn thousand_calls_are_thousand_entries() {
        let counted = match Entries::of(std::process::id()) {
            Ok(counted) => counted,
            Err(e) => {
                // Written past libtest's capture: xtask counts these lines.
                let line = format!("\n[skip] thousand_calls_are_thousand_entries: {e}\n");
                return io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            }
        };
        let before = counted.count().unwrap();
        // A kernel thread that is created meanwhile counts as well. (libtest's own threads may make
        // calls at any time.)
        std::thread::spawn(|| (0..1_000).for_each(|_| _ = rustix::process::getppid()))
            .join()
            .unwrap();
        let after = counted.count().unwrap();
        assert!((1_000..2_000).contains(&(after - before)), "{}", after - before);
    }

    #[test]
    fn missing_process_is_an_error() {
        assert!(Entries::of(u32::MAX).is_err());
    }
}
