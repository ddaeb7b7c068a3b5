//! A counter of perf_event_open(2), which rustix does not provide.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// `struct perf_event_attr` in its first version, which every kernel accepts.
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

/// `PERF_TYPE_HARDWARE`.
pub const HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
#[cfg(test)]
pub const SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`.
pub const TRACEPOINT: u32 = 2;
/// Counts also the threads and processes that the counted thread creates later.
pub const INHERIT: u64 = 1 << 1;
/// Excludes the kernel and hypervisors.
pub const USER_ONLY: u64 = 1 << 5 | 1 << 6;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;

/// A counter that runs from its creation on.
#[derive(Debug)]
pub struct Counter(OwnedFd);

impl Counter {
    /// Counts event `config` of type `kind` on kernel thread `thread` (0: the caller), on any core.
    ///
    /// # Errors
    /// As perf_event_open(2).
    pub fn open(kind: u32, config: u64, flags: u64, thread: i32) -> io::Result<Counter> {
        let attr = Attr {
            kind,
            size: size_of::<Attr>() as u32,
            config,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags,
            wakeup_events: 0,
            bp_type: 0,
            config1: 0,
        };
        // SAFETY: `attr` outlives the call and states its own size; any core, no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                thread,
                -1,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner. Descriptors fit into an int.
        Ok(Counter(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// The count so far, including that of every inheriting thread.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        rustix::io::read(&self.0, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}
