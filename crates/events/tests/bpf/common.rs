//! Access to slots by word, blocking calls, and the check that each sleep is reported.

use std::cell::Cell;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use kumihimo_events::Unavailable;
use kumihimo_events::bpf::pinned::Store;
use kumihimo_events::bpf::tracepoint::Options;
use kumihimo_events::bpf::{Bpf, LENT, SIG_DATA, SLOT_SIZE, WANTS_BLOCKED, WANTS_UNBLOCKED};

/// VP 6.
pub(crate) const TOKEN: u64 = 7 << 2;

thread_local! {
    pub(crate) static TRAPS: Cell<u64> = const { Cell::new(0) };
}
pub(crate) static STRANGE: AtomicU64 = AtomicU64::new(0);

extern "C" fn trapped(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo. For SIGTRAP by perf (code 6), si_perf_data is the u64 at offset
    // 24; for SI_KERNEL (128), si_value is.
    let (code, data) = unsafe { ((*info).si_code, info.cast::<u64>().add(3).read()) };
    if matches!(code, 6 | 128) && data == SIG_DATA {
        TRAPS.set(TRAPS.get() + 1);
    } else {
        STRANGE.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn handle_traps() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeros is a valid sigaction; the handler accesses only a const-initialised
        // thread-local and an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = trapped as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()), 0);
        }
    });
}

/// A slot, accessed by word.
#[derive(Clone, Copy)]
pub(crate) struct Slot(*mut u8);

// SAFETY: the slots outlive the threads of each test (scoped threads), and all accesses are atomic.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(crate) fn of(bpf: &Bpf, number: u32) -> Slot {
        let (start, length) = bpf.memory();
        let at = number as usize * SLOT_SIZE;
        assert!(at + SLOT_SIZE <= length);
        // SAFETY: inside the memory, as asserted above.
        Slot(unsafe { start.add(at) })
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < SLOT_SIZE);
        // SAFETY: aligned, and inside the slot, which outlives this (see Send).
        unsafe { &*self.0.add(at).cast() }
    }

    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < SLOT_SIZE);
        // SAFETY: as above.
        unsafe { &*self.0.add(at).cast() }
    }

    pub(crate) fn vp(&self) -> &AtomicU64 {
        self.word(8)
    }

    pub(crate) fn masked(&self) -> &AtomicU32 {
        self.half(16)
    }

    pub(crate) fn blocked(&self) -> u64 {
        self.word(48).load(Ordering::Acquire)
    }

    pub(crate) fn traps(&self) -> u64 {
        self.word(56).load(Ordering::Acquire)
    }

    pub(crate) fn missed(&self) -> u64 {
        self.word(64).load(Ordering::Acquire)
    }

    pub(crate) fn wait_until_lent(&self) {
        while self.vp().load(Ordering::Acquire) & LENT == 0 {
            thread::yield_now();
        }
    }
}

/// Prints why a test is skipped; scripts/lib.sh counts the line.
pub(crate) fn skip(test: &str, why: &str) {
    println!("[skip] {test}: {why}");
}

pub(crate) fn root() -> bool {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

type Load = fn(u32) -> Result<Bpf, Unavailable>;

/// The ways to load: as a filter, at the tracepoint, and there as on a kernel without task work.
pub(crate) const WAYS: [(&str, Load); 3] =
    [("thread", Bpf::load), ("switch", Bpf::load_switch), ("block", load_without_traps)];

fn load_without_traps(slots: u32) -> Result<Bpf, Unavailable> {
    Bpf::load_switch_with(slots, &Options { traps: false, ..Options::default() })
}

/// Yields the object loaded in each of the [`WAYS`], one after the other, and prints the reason if
/// one is unavailable. With the capabilities all must load, those at the tracepoint from Linux 6.9
/// on.
pub(crate) fn loaded(test: &str, slots: u32) -> impl Iterator<Item = Bpf> {
    handle_traps();
    WAYS.into_iter().filter_map(move |(_, load)| match load(slots) {
        Ok(bpf) => Some(bpf),
        Err(refused) => {
            let is_old = refused.remedy.starts_with("Linux 6.9");
            assert!(is_old || !Store::system().status().may_load, "{refused}");
            skip(test, &refused.to_string());
            None
        }
    })
}

/// Joins all threads and resumes a panic of one of them. The end of a scope would wait as well, but
/// not by pthread_join, which ThreadSanitizer understands.
pub(crate) fn joined<'a>(threads: impl IntoIterator<Item = thread::ScopedJoinHandle<'a, ()>>) {
    for thread in threads {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

pub(crate) fn pipe() -> (PipeReader, PipeWriter) {
    io::pipe().expect("a pipe")
}

pub(crate) fn eventfd() -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: takes integers; the result is a new descriptor.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

pub(crate) fn add(epoll: &OwnedFd, fd: BorrowedFd<'_>, flags: u32, data: u64) {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32 | flags, u64: data };
    // SAFETY: `event` lives through the call.
    let done = unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
    };
    assert_eq!(done, 0);
}

/// Creates an epoll set with one descriptor, whose data is 0.
pub(crate) fn epoll_of(fd: BorrowedFd<'_>, flags: u32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: takes an integer; the result is a new descriptor.
    let epoll = unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert!(epoll >= 0);
        OwnedFd::from_raw_fd(epoll)
    };
    add(&epoll, fd, flags, 0);
    epoll
}

pub(crate) fn nanosleep(ns: i64) -> i32 {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: `time` lives through the call.
    unsafe { libc::nanosleep(&time, ptr::null_mut()) }
}

/// Returns how often the calling kernel thread has gone to sleep, as counted by the kernel.
pub(crate) fn sleeps() -> i64 {
    // SAFETY: all zeros is a valid rusage, and it lives through the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Sleeps until the VP of `slot`, which belongs to the caller, is lent. On a busy core the timer
/// often expires before the thread has left the core; then there is correctly no report. Each sleep
/// that the kernel counts must be reported.
pub(crate) fn sleep_until_lent(slot: Slot, ns: i64) {
    loop {
        let before = sleeps();
        assert_eq!(nanosleep(ns), 0);
        if slot.vp().load(Ordering::Acquire) & LENT != 0 {
            return;
        }
        assert_eq!(sleeps(), before, "a sleep was not reported");
    }
}

pub(crate) fn write_all_at_once(fd: impl AsFd, bytes: &[u8]) -> isize {
    // SAFETY: the buffer and its length match. One call, so that a short write is detected.
    unsafe { libc::write(fd.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) }
}

pub(crate) fn read_once(fd: impl AsFd, bytes: &mut [u8]) -> isize {
    // SAFETY: as above.
    unsafe { libc::read(fd.as_fd().as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// Returns the data of a ready descriptor, or `None` if the call failed.
pub(crate) fn wait_once(epoll: &OwnedFd) -> Option<u64> {
    let mut event = libc::epoll_event { events: 0, u64: u64::MAX };
    // SAFETY: room for one event.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, -1) };
    (count == 1).then_some(event.u64)
}

/// Returns the number of traps of the calling kernel thread since `start`. If traps may be late,
/// waits until `due` have arrived, for 60 s at most.
pub(crate) fn traps_since(bpf: &Bpf, start: u64, due: u64) -> u64 {
    let begun = std::time::Instant::now();
    while bpf.traps()
        && !bpf.traps_at_once()
        && TRAPS.get() - start < due
        && begun.elapsed().as_secs() < 60
    {
        thread::yield_now();
    }
    TRAPS.get() - start
}

/// Runs `rounds` of a blocking call, on a thread in slot 3 that is unmasked and has a VP each time.
/// `partner` ends the call, once in each round. Checks in every round that the VP is lent, with one
/// record and one trap.
pub(crate) fn sleeps_are_told(
    bpf: &Bpf,
    rounds: u64,
    mut call: impl FnMut() + Send,
    mut partner: impl FnMut() + Send,
) {
    let slot = Slot::of(bpf, 3);
    let before = (slot.blocked(), slot.traps());
    let round = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            slot.masked().store(1, Ordering::Relaxed);
            slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
            let attached = bpf.attach(3).expect("attached");
            let start = TRAPS.get();
            for n in 1..=rounds {
                slot.vp().store(TOKEN, Ordering::Relaxed);
                round.store(n, Ordering::Release);
                slot.masked().store(0, Ordering::Release);
                call();
                slot.masked().store(1, Ordering::Release);
                assert_eq!(slot.vp().load(Ordering::Acquire), TOKEN | LENT, "round {n}");
                assert_eq!(
                    traps_since(bpf, start, n),
                    if bpf.traps() { n } else { 0 },
                    "traps after round {n}"
                );
                let mut records = 0;
                bpf.drain(|which, vp| {
                    assert_eq!((which, vp), (3, 6));
                    records += 1;
                });
                assert_eq!(records, 1, "round {n}");
            }
            over.store(true, Ordering::Release);
            drop(attached);
        });
        let thread = scope.spawn(|| {
            for n in 1..=rounds {
                while round.load(Ordering::Acquire) < n {
                    thread::yield_now();
                }
                slot.wait_until_lent();
                partner();
            }
        });
        joined([first, thread]);
    });
    assert!(over.load(Ordering::Acquire));
    // The filter counts them on kernels that send none, too.
    let traps = if bpf.traps() || bpf.traps_at_once() { rounds } else { 0 };
    assert_eq!((slot.blocked() - before.0, slot.traps() - before.1), (rounds, traps));
    assert_eq!(slot.missed(), 0);
}

/// Checks all four kinds of blocking call: no call fails, and none is short.
pub(crate) fn every_kind_of_sleep(bpf: &Bpf, rounds: u64) {
    sleeps_are_told(bpf, rounds, || sleep_until_lent(Slot::of(bpf, 3), 1_000), || ());

    let (reader, mut writer) = pipe();
    let read = || {
        let mut byte = [0];
        assert_eq!(read_once(&reader, &mut byte), 1, "{}", io::Error::last_os_error());
    };
    sleeps_are_told(bpf, rounds, read, || writer.write_all(&[1]).expect("written"));

    let event = eventfd();
    let epoll = epoll_of(event.as_fd(), 0);
    let wait = || {
        assert_eq!(wait_once(&epoll), Some(0), "{}", io::Error::last_os_error());
        assert_eq!(read_once(&event, &mut [0; 8]), 8);
    };
    sleeps_are_told(bpf, rounds, wait, || {
        assert_eq!(write_all_at_once(&event, &1u64.to_ne_bytes()), 8)
    });

    let (mut reader, writer) = pipe();
    let (from, mut to) = (vec![1; 1 << 20], vec![0; 1 << 20]);
    let write =
        || assert_eq!(write_all_at_once(&writer, &from), 1 << 20, "{}", io::Error::last_os_error());
    sleeps_are_told(bpf, rounds, write, || reader.read_exact(&mut to).expect("a megabyte"));
}
