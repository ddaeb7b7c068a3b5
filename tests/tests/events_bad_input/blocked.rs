//! Microprocesses that are blocked in the kernel, in calls outside of Kumihimo.

use std::io::{PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

use kumihimo::runtime::metrics;
use kumihimo::sync::Barrier;
use kumihimo::thread::{self, JoinHandle};

/// Microprocesses that each read a pipe.
pub struct Blocked {
    all: Vec<(JoinHandle<u64>, PipeWriter)>,
}

/// Starts `n` microprocesses that each read a pipe. Returns when all of them are blocked and the
/// caller runs again. Called by a microprocess.
pub fn block(n: u64) -> Blocked {
    let readers = begin(n);
    while metrics().expect("it runs").bound < n as usize || !readers.all_read() {
        thread::yield_now();
    }
    readers.blocked
}

/// Readers, and the descriptors that they read.
pub struct Readers {
    /// The microprocesses, to be released.
    pub blocked: Blocked,
    from: Vec<i32>,
}

impl Readers {
    /// Returns whether each of them is blocked in read(2).
    pub fn all_read(&self) -> bool {
        self.from.iter().all(|fd| who_sleeps_reading(*fd).is_some())
    }
}

/// Has the stacks of `n` microprocesses created before kernel threads run short. Where donor
/// threads provide them, each takes a kernel thread for a moment, which counts until the kernel has
/// reaped it, and the caller waits for it without its VP.
pub fn create_stacks(n: usize) {
    let all_there = Barrier::new(n + 1);
    thread::scope(|s| {
        (0..n).for_each(|_| drop(s.spawn(|| all_there.wait())));
        all_there.wait();
    });
}

/// As [`block`], without waiting.
pub fn begin(n: u64) -> Readers {
    let (mut all, mut from) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        from.push(reader.as_raw_fd());
        let read = move || {
            let mut bytes = [0; 8];
            // A single call, because `read_exact` would repeat it after EINTR.
            assert_eq!(reader.read(&mut bytes).expect("no EINTR"), 8);
            u64::from_ne_bytes(bytes)
        };
        all.push((thread::spawn(read), writer));
    }
    Readers { blocked: Blocked { all }, from }
}

impl Blocked {
    /// Releases all of them and waits for their ends.
    pub fn release(self) {
        self.write();
        self.await_end();
    }

    /// Writes the bytes that each of them reads.
    pub fn write(&self) {
        for (number, (_, writer)) in (0u64..).zip(&self.all) {
            (&*writer).write_all(&number.to_ne_bytes()).expect("room");
        }
    }

    /// Checks that each has read its own bytes.
    pub fn await_end(self) {
        for (number, (handle, _writer)) in (0u64..).zip(self.all) {
            assert_eq!(handle.join().expect("no panic"), number);
        }
    }

    /// Leaves the microprocesses blocked.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

/// ID of the caller's kernel thread.
pub fn this_tid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Returns whether kernel thread `tid` is blocked in system call `number`.
pub fn sleeps_in(tid: u32, number: i64) -> bool {
    let text =
        std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
    text.split(' ').next() == Some(number.to_string().as_str())
}

/// The kernel thread that is blocked in a read of `fd`. A microprocess cannot report its kernel
/// thread itself, because it may move after a preemption.
pub fn who_sleeps_reading(fd: i32) -> Option<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
    let mut tids = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.find(|tid| {
        let text =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
        text.starts_with(&format!("{} {fd:#x} ", libc::SYS_read))
    })
}

/// nanosleep(2) outside of Kumihimo. Returns 0 or an errno.
pub fn nanosleep(ns: i64) -> i32 {
    let time = libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    // SAFETY: a live timespec.
    match unsafe { libc::nanosleep(&time, std::ptr::null_mut()) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().expect("an errno"),
    }
}
