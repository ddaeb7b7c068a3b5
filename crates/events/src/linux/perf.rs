//! Events without privileges: a doorbell that the kernel rings when a kernel thread leaves its CPU.
//!
//! Each watched kernel thread has a software perf event that counts nothing and writes a record at
//! every context switch (`perf_event_open(2)`: `context_switch`), with the smallest buffer that the
//! kernel gives: a page that both sides know and a page of records. A thread that sleeps in epoll
//! on the event's descriptor is woken when a record is written. **A record is only the bell**: none
//! is ever read. Whether the kernel thread is away is asked of /proc, after the bell was made ready
//! to ring again.
//!
//! A record that finds no room is dropped, and rings nothing (kernel/events/ring_buffer.c,
//! `__perf_output_begin`). How much room there is follows from `data_head`, which the kernel
//! writes, and `data_tail`, which we write. So the tail alone, without a system call, says:
//!
//! - *quiet*: room for nothing;
//! - *listening*: room for one record. The switch-out takes it; the switch-in that follows finds
//!   none and wakes nobody, unless the other side was so quick that it has made room again.
//!
//! A record takes 8 bytes, and 24 more for a note if others were dropped before it. Whether any
//! were is not always known; then there is room for both, and if none were, up to four records get
//! in: bells too many, never too few.
//!
//! Why none is missed: a kernel thread that goes to sleep stores its state, executes a full barrier
//! (`set_current_state`) and then looks for room. [`Watched::is_away`] makes room, executes a full
//! barrier and then reads the state. So the one finds room and rings, or the other sees it asleep.
//!
//! The lowest bits of the tail say which of both it is; records are multiples of 8, so the kernel
//! finds the same room.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::linux::perf_event::{self, Software};
use crate::linux::watch::{self, Tid, this_tid};
use crate::report::unavailable::Unavailable;

const PAGE: usize = 4096;
/// One page that both sides know, and a power of two of pages for records: 1 is the fewest that
/// takes any.
const LENGTH: usize = 2 * PAGE;
const RECORDS: u64 = PAGE as u64;
/// PERF_RECORD_SWITCH without an id.
const RECORD: u64 = 8;
/// PERF_RECORD_LOST, which is written together with the first record after some were dropped.
const NOTE: u64 = 24;

// struct perf_event_mmap_page.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
const DATA_SIZE: usize = 1048;

/// The kernel rings when a kernel thread is switched out. That it does was tried out once, by
/// [`probe`](Perf::probe).
#[derive(Clone, Copy, Debug)]
pub struct Perf(());

impl Perf {
    /// Tries it on the calling kernel thread, which sleeps for some microseconds: about 0.5 ms.
    ///
    /// # Errors
    /// Which step the machine refuses, and what would allow it.
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
                "a Linux kernel (4.3 or later, 4.1 for its buffer) that is not an imitation",
            ))
        };
        if watched.word(DATA_OFFSET) != PAGE as u64 || watched.word(DATA_SIZE) != RECORDS {
            return odd("its buffer is not laid out as in Linux");
        }
        // Longer and longer: on a busy host ten naps of 20 us left no record, likely since each was
        // over before the thread had left its CPU.
        if !nap(&watched, Watched::listen, (0..11).map(|n| 20 << n)) {
            return odd("a kernel thread that sleeps leaves no record of its switches");
        }
        if watched.is_away() {
            return odd("/proc says of a kernel thread that runs that it sleeps");
        }
        // A record may come until it is quiet, and not after.
        watched.quiet();
        if nap(&watched, |_| (), [20; 10]) {
            return odd("records are written where there is no room");
        }
        Ok(perf)
    }

    /// Watches the calling kernel thread, quietly: [`listen`](Watched::listen) makes it ring.
    ///
    /// It ends with the result, which takes one descriptor and two pages of locked memory. About 15
    /// us with the end.
    ///
    /// # Errors
    /// No descriptor left (EMFILE, ENFILE), no locked memory (EPERM, with a message that says what
    /// to do), or no memory.
    pub fn watch_this_thread(&self) -> io::Result<Watched> {
        let watched = open().and_then(map)?;
        watched.quiet();
        Ok(watched)
    }
}

fn open() -> io::Result<OwnedFd> {
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

fn map(fd: OwnedFd) -> io::Result<Watched> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a mapping of its own, at an address that the kernel chooses.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
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

/// Sleeps for `times` (microseconds), one after the other and each after `arm`, until a record is
/// written; whether one was.
fn nap(watched: &Watched, arm: impl Fn(&Watched), times: impl IntoIterator<Item = i64>) -> bool {
    times.into_iter().any(|microseconds| {
        // Before it is armed: preempted right after, it has had its record, and the next switch
        // finds no room.
        let before = watched.word(DATA_HEAD);
        arm(watched);
        let mut time = libc::timeval { tv_sec: 0, tv_usec: microseconds };
        let none = std::ptr::null_mut();
        // SAFETY: null pointers are no sets of descriptors.
        unsafe { libc::select(0, none, none, none, &raw mut time) };
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

// The lowest three bits of `data_tail` say what it is meant to say.
/// No room.
const QUIET: u64 = 1;
/// Room for a record and a note.
const FOR_BOTH: u64 = 2;
/// Room for a record, since nothing was dropped that a note would have to tell.
const FOR_ONE: u64 = 3;

/// How much room the kernel finds (CIRC_SPACE of linux/circ_buf.h): it keeps one byte free.
fn room(head: u64, tail: u64) -> u64 {
    tail.wrapping_sub(head).wrapping_sub(1) & (RECORDS - 1)
}

/// The `data_tail` that leaves `room` bytes, and at most 7 more, to a buffer with this head.
const fn tail_for(head: u64, room: u64, meaning: u64) -> u64 {
    head.wrapping_add(room + meaning).wrapping_sub(RECORDS)
}

/// The `data_tail` for which a buffer with this head has room for nothing.
fn full(head: u64, _: u64) -> u64 {
    tail_for(head, 0, QUIET)
}

/// The `data_tail` for which a buffer with this head has room for one record, if `tail` is the one
/// from before.
fn armed(head: u64, tail: u64) -> u64 {
    let untouched =
        [tail_for(head, RECORD, FOR_ONE), tail_for(head, RECORD + NOTE, FOR_BOTH)].contains(&tail);
    if untouched {
        // What was known then holds: there was room, so a record would have moved the head.
        tail
    } else if tail % 8 != QUIET && room(head, tail) >= RECORD {
        // A record was written, with the note if one was due; and there was room for any that came
        // after it.
        tail_for(head, RECORD, FOR_ONE)
    } else {
        tail_for(head, RECORD + NOTE, FOR_BOTH)
    }
}

/// A kernel thread that rings a bell when it leaves its CPU; until this is dropped, by whichever
/// kernel thread.
///
/// A forked child must not use it: the kernel gives it neither the event nor the buffer (an access
/// faults). It may drop it.
#[derive(Debug)]
pub struct Watched {
    fd: OwnedFd,
    page: NonNull<u8>,
    tid: Tid,
    process: u32,
}

// SAFETY: the mapping belongs to the process, and is accessed by atomic loads and stores only.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    /// For epoll(7): readable (EPOLLIN) once after it rang; never to be read. Hung up (EPOLLHUP)
    /// when the kernel thread has ended.
    ///
    /// After adding it to an epoll, call [`is_away`](Watched::is_away) once: the kernel forgets
    /// that it rang when asked, and adding asks. For the same reason it belongs into one epoll
    /// only. Take it out of the epoll before dropping it (EPOLL_CTL_DEL): a child that was forked
    /// in between holds the descriptor, and the epoll would go on reporting it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Which kernel thread it is.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// From here it does not ring. A bell from before may still be on its way. Only by the watched
    /// kernel thread. No system call.
    pub fn quiet(&self) {
        self.set_tail(full);
    }

    /// From here its next switch-out rings. Only by the watched kernel thread. No system call.
    pub fn listen(&self) {
        self.set_tail(armed);
    }

    /// Whether it sleeps in the kernel; false while it is [`quiet`](Watched::quiet). By any kernel
    /// thread other than the watched one, after its bell rang or at any time: its next switch-out
    /// rings again. About 7 us.
    ///
    /// True is out of date at once. False means that it was awake and that it rings when it goes to
    /// sleep, or that it is quiet and rings only after [`listen`](Watched::listen). Rung before it
    /// returns: once more, for nothing.
    pub fn is_away(&self) -> bool {
        loop {
            let tail = self.tail().load(Ordering::Relaxed);
            if tail % 8 == QUIET {
                return false;
            }
            let head = self.head().load(Ordering::Acquire);
            // Fails if the watched kernel thread said `quiet` or `listen` just now: its word
            // counts.
            if self
                .tail()
                .compare_exchange(tail, armed(head, tail), Ordering::Release, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            // Between making room and reading the state; the kernel's side has its own (module
            // documentation).
            fence(Ordering::SeqCst);
            // A record came in between: the room just made is not enough for another one.
            if self.head().load(Ordering::Relaxed) == head {
                break;
            }
        }
        self.sleeps()
    }

    /// Whether it sleeps in the kernel, without making the bell ready again. By any kernel thread.
    /// About 7 us.
    ///
    /// The right question right after a bell, with [`is_away`](Watched::is_away) 100 us later if it
    /// did not sleep: so that a kernel thread whose sleeps are short rings (some 10 us each time,
    /// on its own account) at most once in that time. One that shares a core with the poller needs
    /// it: the poller, woken, takes the core from it, and were the bell ready by then, it would
    /// ring when it gets it back.
    pub fn sleeps(&self) -> bool {
        watch::sleeps(self.tid)
    }

    /// Sets the tail to what `of` makes of the head. The head moves only while this kernel thread
    /// is switched out: if it did so between the two accesses, the tail is for a head that is no
    /// more.
    fn set_tail(&self, of: impl Fn(u64, u64) -> u64) {
        debug_assert_eq!(self.tid, this_tid(), "only by the watched kernel thread");
        loop {
            let head = self.head().load(Ordering::Acquire);
            let tail = self.tail().load(Ordering::Relaxed);
            // Not a compare-exchange: whatever another kernel thread wrote in `is_away` is
            // overruled. It made room for one at least, too.
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
        assert!(at < PAGE && at.is_multiple_of(8));
        // SAFETY: an aligned word of the mapping, which lives as long as `self`; the kernel writes
        // it in one access.
        unsafe { &*self.page.as_ptr().add(at).cast::<AtomicU64>() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A forked child has no such mapping (VM_DONTCOPY), and may have another one at that
        // address.
        if self.process == std::process::id() {
            // SAFETY: ours, and nobody borrows from it.
            unsafe { libc::munmap(self.page.as_ptr().cast(), LENGTH) };
        }
    }
}

#[cfg(test)]
mod tests;
