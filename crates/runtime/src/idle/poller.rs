//! The epoll set of a virtual processor: one edge-triggered set, each descriptor added once.
//!
//! `wait/readiness.rs` waits for the edges that this module counts.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_events::wakeup::lost_descriptor;

use crate::kernel_thread::no_events::lock;
use crate::microprocess::prefetch::prefetch;
use crate::microprocess::waiter::Waiter;

/// A direction of readiness to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable: data, a connection to accept, end of file or an error.
    Read,
    /// Writable: room in the buffer, a finished connect or an error.
    Write,
}

/// Not a valid number of edges: an odd number implies at least one edge.
const NEVER: u32 = 1;

/// The number of edges that was known before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(pub(crate) u32);

/// Entry of a descriptor, to which epoll's user data points. Entries are never freed, only reused:
/// an event that was fetched just before its descriptor was removed finds another generation here.
/// One cache line, because among thousands of connections the entry is always cold.
#[repr(C, align(64))]
pub(crate) struct DescriptorEntry {
    /// Number of edges so far, times two, by direction. The low bit is set if an edge was an end of
    /// file, an error or urgent data. Changed under `waiters` only.
    pub(crate) edges: [AtomicU32; 2],
    /// Value of `edges` before an attempt that found the kernel's buffer empty (or full). While
    /// both are equal, there was no edge since.
    pub(crate) drained_at: [AtomicU32; 2],
    generation: AtomicU32,
    /// The set that contains the descriptor (see [`Poller::home`]), or 0. Changed under `waiters`
    /// only.
    pub(crate) home: AtomicU32,
    pub(crate) waiters: Mutex<Waiters>,
}

#[derive(Default)]
#[repr(C)]
pub(crate) struct Waiters {
    /// The usual case: a single reader. Unset while the first reader is in `others`.
    reader: Option<Waiter>,
    /// Writers and further readers. Kept after its first use. Boxed, so that it needs little room
    /// while unused.
    #[allow(clippy::box_collection)]
    others: Option<Box<Vec<(Interest, Waiter)>>>,
}

const _: () = assert!(size_of::<DescriptorEntry>() == 64);

static FREE: Mutex<Vec<&'static DescriptorEntry>> = Mutex::new(Vec::new());

impl DescriptorEntry {
    pub(crate) fn take() -> &'static DescriptorEntry {
        lock(&FREE).pop().unwrap_or_else(|| {
            Box::leak(Box::new(DescriptorEntry {
                edges: Default::default(),
                drained_at: [AtomicU32::new(NEVER), AtomicU32::new(NEVER)],
                generation: AtomicU32::new(0),
                home: AtomicU32::new(0),
                waiters: Mutex::default(),
            }))
        })
    }

    /// Returns the user data: the address, which has 47 bits in user space, with the low 16 bits of
    /// the generation above it.
    pub(crate) fn token(&'static self) -> u64 {
        let generation = u64::from(self.generation.load(Ordering::Relaxed) & 0xffff);
        (std::ptr::from_ref(self).expose_provenance() as u64) | generation << 48
    }

    fn address(token: u64) -> *const DescriptorEntry {
        std::ptr::with_exposed_provenance((token & 0xffff_ffff_ffff) as usize)
    }

    fn of_token(token: u64) -> Option<&'static DescriptorEntry> {
        // SAFETY: only `token` makes tokens; entries live for ever.
        let entry = unsafe { &*DescriptorEntry::address(token) };
        (u64::from(entry.generation.load(Ordering::Acquire) & 0xffff) == token >> 48)
            .then_some(entry)
    }

    /// Returns the entry to the free list. It is in no set, and no source uses it.
    pub(crate) fn give_back(&'static self) {
        self.generation.fetch_add(1, Ordering::Release);
        {
            let mut waiters = lock(&self.waiters);
            waiters.reader = None;
            if let Some(others) = &mut waiters.others {
                others.clear();
            }
            for i in 0..2 {
                // A late event of the old descriptor may still count here: one superfluous attempt.
                self.edges[i].store(0, Ordering::Relaxed);
                self.drained_at[i].store(NEVER, Ordering::Relaxed);
            }
            self.home.store(0, Ordering::Relaxed);
        }
        lock(&FREE).push(self);
    }

    pub(crate) fn edges(&self, interest: Interest) -> u32 {
        self.edges[interest as usize].load(Ordering::Acquire)
    }

    /// Counts the edges that epoll reports, and wakes the waiters. Returns the reader, which the
    /// caller wakes.
    fn report(&self, flags: i32) -> Option<Waiter> {
        let gone = flags & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
        // After one of these, a short read does not mean that the buffer is empty, and they may
        // cause no edge of their own later.
        let last = gone || flags & (libc::EPOLLRDHUP | libc::EPOLLPRI) != 0;
        let (read, write) =
            (last || flags & libc::EPOLLIN != 0, gone || flags & libc::EPOLLOUT != 0);
        let mut waiters = lock(&self.waiters);
        for (interest, came, lasting) in
            [(Interest::Read, read, last), (Interest::Write, write, gone)]
        {
            if came {
                let edges = &self.edges[interest as usize];
                let n = edges.load(Ordering::Relaxed).wrapping_add(2) | u32::from(lasting);
                // Release: a reader of the new number makes an attempt that finds the reported
                // state.
                edges.store(n, Ordering::Release);
            }
        }
        if let Some(others) = &mut waiters.others {
            others.retain(|(interest, w)| {
                let came = if *interest == Interest::Read { read } else { write };
                if came {
                    w.wake();
                }
                !came
            });
        }
        if read { waiters.reader.take() } else { None }
    }
}

impl Waiters {
    /// Adds a waiter, unless it is enrolled already.
    pub(crate) fn enrol(&mut self, interest: Interest, who: &Waiter) {
        if interest == Interest::Read {
            match &self.reader {
                None => return self.reader = Some(who.clone()),
                Some(first) if first == who => return,
                Some(_) => {}
            }
        }
        let others = self.others.get_or_insert_default();
        if !others.iter().any(|(i, w)| *i == interest && w == who) {
            others.push((interest, who.clone()));
        }
    }

    pub(crate) fn strike(&mut self, interest: Interest, who: &Waiter) {
        if interest == Interest::Read && self.reader.as_ref() == Some(who) {
            self.reader = None;
        }
        if let Some(others) = &mut self.others {
            others.retain(|(i, w)| *i != interest || w != who);
        }
    }
}

/// Number of events fetched per call. The next call fetches the rest.
const EVENTS: usize = 64;

/// User data of a wake-up of the VP: no entry has address 0.
pub(crate) const CALL: u64 = 0;

/// Bit of the user data of another VP's epoll set, above which is its descriptor. Entries are
/// aligned, so their data never have it.
const NESTED: u64 = 1;
/// Number of other VPs' sets that are served in one call. The next call serves the rest.
const SETS: usize = 8;

/// A VP's epoll set.
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// Unique number of the set (22 bits, from 1), and index of the VP (10 bits).
    pub(crate) home: u32,
    /// Resident in the VP and never in a user's memory: the kernel writes to it while page faults
    /// are not allowed.
    events: UnsafeCell<[libc::epoll_event; EVENTS]>,
    /// Waiters to be woken for `events`.
    due: UnsafeCell<[Option<Waiter>; EVENTS]>,
    /// Number of descriptors in the set, excluding that of the VP's waker.
    registered: AtomicUsize,
    /// Whether epoll_pwait2 (Linux 5.11), which takes nanoseconds, is unavailable.
    coarse: Cell<bool>,
    /// Number of descriptor events so far. Written by the owner.
    heard: Cell<u64>,
}

impl Poller {
    pub(crate) fn new(vp: usize) -> io::Result<Poller> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            let e = io::Error::last_os_error();
            return Err(io::Error::new(
                e.kind(),
                format!(
                    "epoll set of a virtual processor: {e}; raise the descriptor limit (ulimit -n)"
                ),
            ));
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 0x3f_fffe + 1;
        Ok(Poller {
            home: number << 10 | (vp as u32 & 0x3ff),
            // SAFETY: a new descriptor without another owner.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: UnsafeCell::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS]),
            due: UnsafeCell::new([const { None }; EVENTS]),
            registered: AtomicUsize::new(0),
            coarse: Cell::new(false),
            heard: Cell::new(0),
        })
    }

    /// Returns the set's descriptor, which is readable when something in the set is ready.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn ctl(&self, op: i32, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: one live event, copied by the kernel.
        let r = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let both =
            (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET)
                as u32;
        self.ctl(libc::EPOLL_CTL_ADD, fd, both, token)?;
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        if self.ctl(libc::EPOLL_CTL_DEL, fd, 0, 0).is_ok() {
            self.registered.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds the set of another VP, which is parked: the owner of this set then serves that set's
    /// descriptors, too. The other set stays open for as long as this one is used.
    pub(crate) fn add_set(&self, other: &Poller) -> io::Result<()> {
        let fd = other.epoll.as_raw_fd();
        self.ctl(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, (fd as u64) << 1 | NESTED)?;
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reverts [`add_set`](Poller::add_set).
    pub(crate) fn remove_set(&self, other: &Poller) {
        self.remove(other.epoll.as_raw_fd());
    }

    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.registered.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of descriptors in the set.
    pub(crate) fn waited_for(&self) -> u32 {
        self.registered.load(Ordering::Relaxed) as u32
    }

    /// Returns the number of descriptor events so far, excluding wake-ups of the VP. Owner only.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.get()
    }

    /// Wakes the waiters of ready descriptors; with `first`, in front of the others of their level.
    /// Does not block. Owner only.
    pub(crate) fn poll_ready(&self, first: bool) {
        self.wait(Some(Duration::ZERO), first);
    }

    /// Blocks the kernel thread until a descriptor is ready, the VP is woken, or the time is over.
    /// Owner only.
    pub(crate) fn sleep(&self, time: Option<Duration>) {
        self.wait(time, false);
    }

    fn wait(&self, time: Option<Duration>, first: bool) {
        let events = self.events.get().cast::<libc::epoll_event>();
        let n = usize::try_from(self.wait_system_call(events, time)).unwrap_or(0);
        let mut sets = [-1; SETS];
        self.wake_waiters(n, first, &mut sets);
        for set in sets.into_iter().take_while(|set| *set >= 0) {
            // SAFETY: room for EVENTS events. The set's VP polls it at the same time at most, and
            // each edge is reported to one of both.
            let n = unsafe { libc::epoll_wait(set, events, EVENTS as i32, 0) };
            self.wake_waiters(usize::try_from(n).unwrap_or(0), first, &mut [-1; SETS]);
        }
    }

    /// Wakes the waiters of the first `n` events. Puts ready sets of other VPs into `sets`.
    fn wake_waiters(&self, n: usize, first: bool, sets: &mut [RawFd; SETS]) {
        let events = self.events.get().cast::<libc::epoll_event>();
        let mut sets = sets.iter_mut();
        // With thousands of connections, entry, record and stack of each waiter are cold, and would
        // cost one cache miss after the other. So there are three rounds, and each prefetches for
        // all events what the next round needs.
        for i in 0..n {
            // SAFETY: the kernel has filled the first n entries.
            prefetch(DescriptorEntry::address(unsafe { (*events.add(i)).u64 }).cast());
        }
        // SAFETY: owner only, and nothing below re-enters this function.
        let due = unsafe { &mut *self.due.get() };
        for (i, due) in due[..n].iter_mut().enumerate() {
            // SAFETY: the kernel has filled the first n entries.
            let event = unsafe { events.add(i).read() };
            let (flags, token) = (event.events as i32, event.u64);
            if token & NESTED != 0 {
                if let Some(set) = sets.next() {
                    *set = (token >> 1) as RawFd;
                }
            } else if token != CALL {
                self.heard.set(self.heard.get() + 1);
                *due = DescriptorEntry::of_token(token).and_then(|entry| entry.report(flags));
                due.iter().for_each(Waiter::prefetch_record);
            }
        }
        if first {
            // Each is queued in front of the one before.
            due[..n].reverse();
        }
        for waiter in due[..n].iter_mut().filter_map(Option::take) {
            waiter.prefetch_stack();
            if first { waiter.wake_sync() } else { waiter.wake() }
        }
    }

    fn wait_system_call(&self, events: *mut libc::epoll_event, time: Option<Duration>) -> i32 {
        let fd = self.epoll.as_raw_fd();
        if !self.coarse.get() && time != Some(Duration::ZERO) {
            let ts = time.map(crate::process::futex::timespec);
            let ts = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
            // SAFETY: room for EVENTS events, a null or live timespec, no signal mask.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    fd,
                    events,
                    EVENTS as i32,
                    ts,
                    std::ptr::null::<libc::sigset_t>(),
                    8,
                )
            };
            if n >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                return n as i32;
            }
            self.coarse.set(true);
        }
        // Rounded up: an early wake-up would only cause another call.
        let ms = time
            .map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: room for EVENTS events.
        let n = unsafe { libc::epoll_wait(fd, events, EVENTS as i32, ms) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                lost_descriptor(fd, "the epoll set of a virtual processor", &error);
            }
        }
        n
    }
}
