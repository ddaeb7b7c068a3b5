//! Microprocesses that are blocked in the kernel, in calls that Kumihimo knows nothing of.

use std::io::{PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

use kumihimo::runtime::metrics;
use kumihimo::thread::{self, JoinHandle};

/// Some that read a pipe each.
pub struct Blocked {
    all: Vec<(JoinHandle<u64>, PipeWriter)>,
}

/// `n` microprocesses that read from a pipe each; returns when all of them are blocked and the
/// caller runs all the same. Called by a microprocess.
pub fn block(n: u64) -> Blocked {
    let readers = begin(n);
    while metrics().expect("it runs").bound < n as usize || !readers.all_read() {
        thread::yield_now();
    }
    readers.blocked
}

/// Readers, and what they read.
pub struct Readers {
    /// They, to be released.
    pub blocked: Blocked,
    from: Vec<i32>,
}

impl Readers {
    /// Whether each of them sleeps in its read(2).
    pub fn all_read(&self) -> bool {
        self.from.iter().all(|fd| who_sleeps_reading(*fd).is_some())
    }
}

/// As [`block`], without waiting for anything.
pub fn begin(n: u64) -> Readers {
    let (mut all, mut from) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        from.push(reader.as_raw_fd());
        let read = move || {
            let mut bytes = [0; 8];
            // One call: `read_exact` would try again after EINTR.
            assert_eq!(reader.read(&mut bytes).expect("no EINTR"), 8);
            u64::from_ne_bytes(bytes)
        };
        all.push((thread::spawn(read), writer));
    }
    Readers { blocked: Blocked { all }, from }
}

impl Blocked {
    /// Lets them all go, and waits for them.
    pub fn release(self) {
        self.write();
        self.await_end();
    }

    /// Writes for each of them what it reads.
    pub fn write(&self) {
        for (number, (_, writer)) in (0u64..).zip(&self.all) {
            (&*writer).write_all(&number.to_ne_bytes()).expect("room");
        }
    }

    /// Each has read what was written for it.
    pub fn await_end(self) {
        for (number, (handle, _writer)) in (0u64..).zip(self.all) {
            assert_eq!(handle.join().expect("no panic"), number);
        }
    }

    /// Never released.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

/// The kernel thread that the caller is on.
pub fn this_tid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Whether kernel thread `tid` sleeps inside system call `number`.
pub fn sleeps_in(tid: u32, number: i64) -> bool {
    let text =
        std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
    text.split(' ').next() == Some(number.to_string().as_str())
}

/// The kernel thread that sleeps in a read of `fd`. A microprocess knows only until it is preempted
/// on which one it runs.
pub fn who_sleeps_reading(fd: i32) -> Option<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
    let mut tids = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.find(|tid| {
        let text =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
        text.starts_with(&format!("{} {fd:#x} ", libc::SYS_read))
    })
}

/// Sleeps until the signal or the time, as code does that knows nothing of Kumihimo: 0 or an errno.
pub fn nanosleep(ns: i64) -> i32 {
    let time = libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    // SAFETY: a live timespec.
    match unsafe { libc::nanosleep(&time, std::ptr::null_mut()) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().expect("an errno"),
    }
}
