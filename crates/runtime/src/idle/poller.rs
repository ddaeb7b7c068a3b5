//! The epoll set of a virtual processor: one edge-triggered set, each descriptor added once.
//!
//! `wait/readiness.rs` waits for the edges that are counted here.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::kernel_thread::no_events::lock;
use crate::microprocess::prefetch::prefetch;
use crate::microprocess::waiter::Waiter;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, a connection to accept, end of file or an error.
    Read,
    /// Room, a finished connect or an error.
    Write,
}

/// Never a number of edges: an odd one has at least one edge.
const NEVER: u32 = 1;

/// The edges that were known before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(pub(crate) u32);

/// What epoll's user data points at. Never freed, only used again: an event that was fetched just
/// before the descriptor was removed finds another generation here. One cache line: among thousands
/// of connections it is always cold.
#[repr(C, align(64))]
pub(crate) struct DescriptorEntry {
    /// Edges so far, times two, by direction. The low bit: one of them was an end, an error or
    /// urgent data. Changed under `waiters` only.
    pub(crate) edges: [AtomicU32; 2],
    /// Value of `edges` before an attempt that found the kernel's buffer empty (or full). While
    /// both are equal, nothing has come since.
    pub(crate) drained_at: [AtomicU32; 2],
    generation: AtomicU32,
    /// The set that it is in: see [`Poller::home`]. 0: none. Changed under `waiters` only.
    pub(crate) home: AtomicU32,
    pub(crate) waiters: Mutex<Waiters>,
}

#[derive(Default)]
#[repr(C)]
pub(crate) struct Waiters {
    /// The usual case: one that reads. Without a reader in `others` before it.
    reader: Option<Waiter>,
    /// Those that write, and further ones that read. Kept once it is there. Boxed, so that it takes
    /// no room where it is not.
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

    /// User-space addresses have 47 bits; the generation's low 16 go above.
    pub(crate) fn token(&'static self) -> u64 {
        let generation = u64::from(self.generation.load(Ordering::Relaxed) & 0xffff);
        (std::ptr::from_ref(self).expose_provenance() as u64) | generation << 48
    }

    fn address(token: u64) -> *const DescriptorEntry {
        std::ptr::with_exposed_provenance((token & 0xffff_ffff_ffff) as usize)
    }

    fn of_token(token: u64) -> Option<&'static DescriptorEntry> {
        // SAFETY: tokens are made by `token` only; entries live for ever.
        let entry = unsafe { &*DescriptorEntry::address(token) };
        (u64::from(entry.generation.load(Ordering::Acquire) & 0xffff) == token >> 48)
            .then_some(entry)
    }

    /// Out of every set, used by nobody: ready for another descriptor.
    pub(crate) fn give_back(&'static self) {
        self.generation.fetch_add(1, Ordering::Release);
        {
            let mut waiters = lock(&self.waiters);
            waiters.reader = None;
            if let Some(others) = &mut waiters.others {
                others.clear();
            }
            for i in 0..2 {
                // A late event of the old descriptor may still count here: one attempt for nothing.
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

    /// Takes in what epoll says of the descriptor. Returns the reader to be woken; the others have
    /// been.
    fn report(&self, flags: i32) -> Option<Waiter> {
        let gone = flags & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
        // A read may end short of these although more lies behind, or they make no edge of their
        // own later.
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
                // Release: a reader of the new number makes an attempt that finds what it stands
                // for.
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
    /// Once, however often it comes.
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

/// Events fetched at once. More than what is ready costs nothing; the rest comes at the next look.
const EVENTS: usize = 64;

/// User data of the VP's own eventfd: no entry lies at address 0.
const CALL: u64 = 0;

/// A VP's epoll set.
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// Number among all sets that there ever were (22 bits, from 1), and index of the VP (10 bits).
    pub(crate) home: u32,
    /// Resident in the VP and never a user's memory: the kernel writes it while nobody may fault.
    events: UnsafeCell<[libc::epoll_event; EVENTS]>,
    /// Those to be woken for them.
    due: UnsafeCell<[Option<Waiter>; EVENTS]>,
    /// Descriptors in the set, the VP's own not counted.
    registered: AtomicUsize,
    /// epoll_pwait2 (Linux 5.11) takes nanoseconds.
    coarse: Cell<bool>,
    /// Events of descriptors so far. By the owner.
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
            // SAFETY: a fresh descriptor that nobody else owns.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: UnsafeCell::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS]),
            due: UnsafeCell::new([const { None }; EVENTS]),
            registered: AtomicUsize::new(0),
            coarse: Cell::new(false),
            heard: Cell::new(0),
        })
    }

    /// Readable when something in it is ready.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn ctl(&self, op: i32, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: one live event, copied by the kernel.
        let r = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The VP's own eventfd; level-triggered, so that a call is never missed.
    pub(crate) fn watch_call(&self, fd: RawFd) -> io::Result<()> {
        self.ctl(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, CALL)
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

    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.registered.load(Ordering::Relaxed) != 0
    }

    /// How many descriptors are in the set.
    pub(crate) fn waited_for(&self) -> u32 {
        self.registered.load(Ordering::Relaxed) as u32
    }

    /// Events of descriptors so far, calls of the VP not counted. Owner only.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.get()
    }

    /// Takes in what is ready; `first`: before the others of their level. Does not block. Owner
    /// only.
    pub(crate) fn poll_ready(&self, first: bool) {
        self.wait(Some(Duration::ZERO), first);
    }

    /// Blocks the kernel thread until something is ready, the VP is called, or the time is over.
    /// Owner only.
    pub(crate) fn sleep(&self, time: Option<Duration>) {
        self.wait(time, false);
    }

    fn wait(&self, time: Option<Duration>, first: bool) {
        let events = self.events.get().cast::<libc::epoll_event>();
        let n = usize::try_from(self.wait_system_call(events, time)).unwrap_or(0);
        // Entry, record and stack of each are cold among thousands, and would be waited for one
        // after the other: three rounds, in each of which all of one kind are fetched at once for
        // the next.
        for i in 0..n {
            // SAFETY: the kernel has filled the first n.
            prefetch(DescriptorEntry::address(unsafe { (*events.add(i)).u64 }).cast());
        }
        // SAFETY: owner only, and nothing below comes back here.
        let due = unsafe { &mut *self.due.get() };
        for (i, due) in due[..n].iter_mut().enumerate() {
            // SAFETY: the kernel has filled the first n.
            let event = unsafe { events.add(i).read() };
            let (flags, token) = (event.events as i32, event.u64);
            if token != CALL {
                self.heard.set(self.heard.get() + 1);
                *due = DescriptorEntry::of_token(token).and_then(|entry| entry.report(flags));
                due.iter().for_each(Waiter::prefetch_record);
            }
        }
        if first {
            // Each goes before the one before it.
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
        // Rounded up: waking too early would only mean another turn.
        let ms = time
            .map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: room for EVENTS events.
        unsafe { libc::epoll_wait(fd, events, EVENTS as i32, ms) }
    }
}
