//! Events by perf, without privileges: the kernel wakes a waiter when a watched kernel thread
//! leaves its CPU.
//!
//! Each watched kernel thread has a software perf event that counts nothing and writes a record at
//! every context switch (perf_event_open(2), `context_switch`). Its buffer is the smallest that the
//! kernel provides: a page shared with the kernel, and a page of records. A written record makes
//! the event's descriptor readable and wakes a thread that sleeps in epoll on it: the event
//! *rings*. **No record is ever read.** The woken thread arms the event again, and then reads from
//! /proc whether the watched thread sleeps.
//!
//! # Arming
//!
//! The kernel drops a record that finds no room, and wakes no thread for it
//! (kernel/events/ring_buffer.c, `__perf_output_begin`). The room follows from `data_head`, which
//! the kernel writes, and `data_tail`, which this module writes. So the tail alone, without a
//! system call, selects one of two states:
//!
//! - *quiet*: there is no room.
//! - *listening*: there is room for one record. The switch-out fills it. The switch-in that follows
//!   finds no room and does not ring, unless another thread has armed the event again in between.
//!
//! A record takes 8 bytes, and 24 more for a note (PERF_RECORD_LOST) if others were dropped before
//! it. It is not always known whether any were. In that case there is room for both. If none were
//! dropped, up to four records fit: too many rings, never too few.
//!
//! # Why no sleep is missed
//!
//! A kernel thread that goes to sleep stores its state, executes a full barrier
//! (`set_current_state`) and then checks for room. [`Watched::is_away`] makes room, executes a full
//! barrier and then reads the state. So either the sleeper finds room and rings, or `is_away` finds
//! it asleep.
//!
//! The lowest bits of the tail encode which state is meant. Records are multiples of 8 bytes, so
//! the kernel computes the same room.
//! finds the same room.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use kumihimo_arch::cpu::page_size;
use kumihimo_arch::descriptor::Descriptor;

use crate::linux::perf_event::{self, Software};
use crate::linux::watch::{self, Tid, this_tid};
use crate::report::unavailable::Unavailable;

/// A page shared with the kernel, and a power of two of pages for records. One page is the minimum
/// that takes records.
#[inline(always)]
fn length() -> usize {
    2 * page_size()
}

/// The bytes for records.
#[inline(always)]
fn records() -> u64 {
    page_size() as u64
}

/// The size of a PERF_RECORD_SWITCH without an ID.
const RECORD: u64 = 8;
/// The size of a PERF_RECORD_LOST. It is written together with the first record after others were
/// dropped.
const NOTE: u64 = 24;

// struct perf_event_mmap_page.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
const DATA_SIZE: usize = 1048;

/// Shows that this kernel writes a record when a kernel thread is switched out.
/// [`probe`](Perf::probe) tests that.
#[derive(Clone, Copy, Debug)]
pub struct Perf(());

impl Perf {
    /// Tests an event on the calling kernel thread, which sleeps for some microseconds. Takes about
    /// 0.5 ms.
    ///
    /// # Errors
    /// The step that the machine refuses, and the setting that would allow it.
    pub fn probe() -> Result<Perf, Unavailable> {
        let perf = Perf(());
        watch::readable().map_err(|e| {
            Unavailable::new(
                format!("/proc/self/task/{}/stat cannot be read: {e}", this_tid()),
                "mount procfs on /proc (mount -t proc proc /proc)",
            )
        })?;
        let watched = open()
            .map_err(|e| open_unavailable(&e))
            .and_then(|fd| map(fd).map_err(|e| map_unavailable(&e)))?;
        let odd = |what: &str| {
            Err(Unavailable::new(
                format!("perf_event_open works, but {what}"),
                "a Linux kernel 4.3 or later, instead of an emulation of it",
            ))
        };
        if watched.word(DATA_OFFSET) != records() || watched.word(DATA_SIZE) != records() {
            return odd("its buffer is not laid out as in Linux");
        }
        // Each nap is longer than the one before. On a busy host, a nap of 20 us may end before the
        // thread has left its CPU, without a record.
        if !nap(&watched, Watched::listen, (0..11).map(|n| 20 << n)) {
            return odd("a sleeping kernel thread leaves no record of its switches");
        }
        if watched.is_away() {
            return odd("/proc reports a running kernel thread as asleep");
        }
        // A record may be written until the event is quiet, and not after.
        watched.quiet();
        if nap(&watched, |_| (), [20; 10]) {
            return odd("the kernel writes records without room for them");
        }
        Ok(perf)
    }

    /// Creates an event that watches the calling kernel thread. The event is quiet until
    /// [`listen`](Watched::listen).
    ///
    /// The event lives as long as the result, and takes one descriptor and two pages of locked
    /// memory. Creation and drop take about 15 us.
    ///
    /// # Errors
    /// EMFILE or ENFILE without a free descriptor. EPERM without locked memory, with a message that
    /// names the remedy. ENOMEM without memory.
    pub fn watch_this_thread(&self) -> io::Result<Watched> {
        let watched = open().and_then(map)?;
        watched.quiet();
        Ok(watched)
    }
}

fn open() -> io::Result<Descriptor> {
    perf_event::open(
        Software {
            config: perf_event::DUMMY,
            // The kernel records a switch although it happens in kernel mode. Only the permission
            // to open the event depends on this.
            flags: perf_event::EXCLUDE_KERNEL
                | perf_event::EXCLUDE_HV
                | perf_event::WATERMARK
                | perf_event::CONTEXT_SWITCH,
            // Less than any record: each one wakes the reader.
            wakeup_watermark: 1,
            ..Software::default()
        },
        0,
    )
}

fn map(fd: Descriptor) -> io::Result<Watched> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), length(), protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        let e = io::Error::last_os_error();
        return Err(match e.raw_os_error() {
            Some(libc::EPERM) => io::Error::new(
                e.kind(),
                "the 8 KiB buffer of a perf event: the user's locked memory is used up (mmap: EPERM); raise ulimit -l or \
                 kernel.perf_event_mlock_kb, or use fewer kernel threads",
            ),
            _ => e,
        });
    }
    let page = NonNull::new(at.cast()).expect("mmap without MAP_FIXED does not give address 0");
    Ok(Watched { fd, page, tid: this_tid(), process: std::process::id() })
}

/// Sleeps for each of `times` (microseconds), after a call of `arm`, until a record is written.
/// Returns whether one was written.
fn nap(watched: &Watched, arm: impl Fn(&Watched), times: impl IntoIterator<Item = i64>) -> bool {
    times.into_iter().any(|microseconds| {
        // Read before the event is armed: if the thread is preempted immediately afterwards, that
        // switch writes the record, and the next one finds no room.
        let before = watched.word(DATA_HEAD);
        arm(watched);
        let time = libc::timespec { tv_sec: 0, tv_nsec: microseconds * 1000 };
        // SAFETY: a live time, and no descriptors.
        unsafe { kumihimo_arch::kernel::ppoll(std::ptr::null_mut(), 0, &raw const time) };
        watched.word(DATA_HEAD) != before
    })
}

fn open_unavailable(e: &io::Error) -> Unavailable {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let paranoid = paranoid.and_then(|text| text.trim().parse::<i32>().ok());
    match (e.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(level @ 3..)) => Unavailable::new(
            format!("perf_event_open: {e}; kernel.perf_event_paranoid is {level}"),
            "sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON (setcap cap_perfmon+ep PROGRAM)",
        ),
        (Some(libc::EACCES | libc::EPERM), _) => Unavailable::new(
            format!(
                "perf_event_open: {e}, although kernel.perf_event_paranoid would allow it: a seccomp filter or a security module"
            ),
            "allow perf_event_open in the container's seccomp profile",
        ),
        (Some(libc::ENOSYS), _) => Unavailable::new(
            format!("perf_event_open: {e}: a kernel without perf events, or a seccomp filter"),
            "allow perf_event_open in the container's seccomp profile, or a kernel with CONFIG_PERF_EVENTS",
        ),
        (Some(libc::EMFILE | libc::ENFILE), _) => Unavailable::new(
            format!("perf_event_open: {e}"),
            "a higher limit of open files (ulimit -n)",
        ),
        _ => Unavailable::new(
            format!("perf_event_open: {e}"),
            "a Linux kernel 4.3 or later with CONFIG_PERF_EVENTS",
        ),
    }
}

fn map_unavailable(e: &io::Error) -> Unavailable {
    Unavailable::new(e.to_string(), "ulimit -l 65536, or sysctl kernel.perf_event_mlock_kb=4096")
}

// The lowest three bits of `data_tail` encode its meaning.
/// No room.
const QUIET: u64 = 1;
/// Room for a record and a note.
const FOR_BOTH: u64 = 2;
/// Room for a record only: no record was dropped, so no note is due.
const FOR_ONE: u64 = 3;

/// Returns the room that the kernel computes. It keeps one byte free (`CIRC_SPACE` of
/// linux/circ_buf.h).
fn room(head: u64, tail: u64) -> u64 {
    tail.wrapping_sub(head).wrapping_sub(1) & (records() - 1)
}

/// Returns the `data_tail` that leaves `room` bytes, and at most 7 more, in a buffer with this
/// head.
fn tail_for(head: u64, room: u64, meaning: u64) -> u64 {
    head.wrapping_add(room + meaning).wrapping_sub(records())
}

/// Returns the `data_tail` with which a buffer with this head has no room.
fn full(head: u64, _: u64) -> u64 {
    tail_for(head, 0, QUIET)
}

/// Returns the `data_tail` with which a buffer with this head has room for one record. `tail` is
/// the previous one.
fn armed(head: u64, tail: u64) -> u64 {
    let untouched =
        [tail_for(head, RECORD, FOR_ONE), tail_for(head, RECORD + NOTE, FOR_BOTH)].contains(&tail);
    if untouched {
        // No switch has occurred since the event was armed: there was room, so a record would have
        // moved the head.
        tail
    } else if tail % 8 != QUIET && room(head, tail) >= RECORD {
        // A record was written since, with the note if one was due. There is still room, so no
        // record was dropped after it.
        tail_for(head, RECORD, FOR_ONE)
    } else {
        tail_for(head, RECORD + NOTE, FOR_BOTH)
    }
}

/// An event that rings when its kernel thread leaves its CPU. Any thread may drop it.
///
/// A forked child must not use it: the child has neither the event nor the buffer, and an access
/// faults. The child may drop it.
#[derive(Debug)]
pub struct Watched {
    fd: Descriptor,
    page: NonNull<u8>,
    tid: Tid,
    process: u32,
}

// SAFETY: the mapping belongs to the process, and is accessed by atomic loads and stores only.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    /// Returns the descriptor for epoll(7). It is readable (EPOLLIN) once after each ring, and must
    /// not be read. It is hung up (EPOLLHUP) when the kernel thread has ended.
    ///
    /// Call [`is_away`](Watched::is_away) once after adding the descriptor to an epoll set. A poll
    /// clears the readiness, and adding polls. For the same reason the descriptor may be in one
    /// epoll set only. Remove it from the set before dropping it (EPOLL_CTL_DEL): a child of
    /// fork(2) may hold the descriptor, and the set would continue to report it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the thread ID of the watched kernel thread.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Makes the event quiet. An earlier ring may still be under way. Called by the watched kernel
    /// thread. Makes no system call.
    pub fn quiet(&self) {
        self.set_tail(full);
    }

    /// Arms the event: the thread's next switch-out rings. Called by the watched kernel thread.
    /// Makes no system call.
    pub fn listen(&self) {
        self.set_tail(armed);
    }

    /// Returns whether the watched thread sleeps in the kernel, and arms the event again. Returns
    /// false while the event is [`quiet`](Watched::quiet). Called by any other kernel thread, after
    /// a ring or at any time. Takes about 7 us.
    ///
    /// A result of true may be out of date. A result of false means that the thread was awake and
    /// rings when it goes to sleep, or that the event is quiet until [`listen`](Watched::listen). A
    /// switch before this returns rings once more, needlessly.
    pub fn is_away(&self) -> bool {
        loop {
            let tail = self.tail().load(Ordering::Relaxed);
            if tail % 8 == QUIET {
                return false;
            }
            let head = self.head().load(Ordering::Acquire);
            // Fails if the watched kernel thread has just called `quiet` or `listen`, which take
            // precedence.
            if self
                .tail()
                .compare_exchange(tail, armed(head, tail), Ordering::Release, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            // Between making room and reading the state. The kernel executes the matching barrier
            // (module documentation).
            fence(Ordering::SeqCst);
            // If a record was written in between, the new room is too small for another one.
            if self.head().load(Ordering::Relaxed) == head {
                break;
            }
        }
        self.sleeps()
    }

    /// Returns whether the watched thread sleeps in the kernel, without arming the event. Called by
    /// any kernel thread. Takes about 7 us.
    ///
    /// Call this immediately after a ring and, if the thread did not sleep,
    /// [`is_away`](Watched::is_away) 100 us later. A kernel thread with short sleeps then rings at
    /// most once in that time; each ring costs it some 10 us. A thread that shares its core with
    /// the poller needs this delay. The woken poller takes the core from it, and an armed event
    /// would ring again when the thread gets the core back.
    pub fn sleeps(&self) -> bool {
        watch::sleeps(self.tid)
    }

    /// Sets the tail to `of(head, tail)`. The head moves only while this kernel thread is switched
    /// out. If it moved between the two accesses, the new tail belongs to an outdated head and is
    /// computed again.
    fn set_tail(&self, of: impl Fn(u64, u64) -> u64) {
        debug_assert_eq!(self.tid, this_tid(), "only by the watched kernel thread");
        loop {
            let head = self.head().load(Ordering::Acquire);
            let tail = self.tail().load(Ordering::Relaxed);
            // A plain store, no compare-exchange: it overrides what another kernel thread wrote in
            // `is_away`. That thread has also made room for one record at least.
            self.tail().store(of(head, tail), Ordering::Release);
            if self.head().load(Ordering::Acquire) == head {
                return;
            }
        }
    }

    fn head(&self) -> &AtomicU64 {
        self.field(DATA_HEAD)
    }

    fn tail(&self) -> &AtomicU64 {
        self.field(DATA_TAIL)
    }

    fn word(&self, at: usize) -> u64 {
        self.field(at).load(Ordering::Acquire)
    }

    fn field(&self, at: usize) -> &AtomicU64 {
        assert!(at < page_size() && at.is_multiple_of(8));
        // SAFETY: an aligned word of the mapping, which lives as long as `self`. The kernel writes
        // it in one access.
        unsafe { &*self.page.as_ptr().add(at).cast::<AtomicU64>() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A forked child does not inherit the mapping (VM_DONTCOPY), and may have another one at
        // that address.
        if self.process == std::process::id() {
            // SAFETY: the mapping belongs to `self`, and nothing borrows from it.
            unsafe { libc::munmap(self.page.as_ptr().cast(), length()) };
        }
    }
}

#[cfg(test)]
mod tests;
