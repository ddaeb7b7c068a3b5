//! Readiness of descriptors: one edge-triggered epoll set per VP, each descriptor added once.
//!
//! The set belongs to the VP and moves with it between kernel threads at no cost per connection. Nothing is ever in flight in
//! the kernel on a microprocess's behalf: an operation is tried, and only after EAGAIN does its caller wait here for the next
//! edge. Edges are counted, so that one which comes between the attempt and the wait is not lost, and several may wait.
//!
//! Source: epoll(7), "edge-triggered": after a short read or write on a stream socket the next attempt would say EAGAIN.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::park::{self, Wait, Waiter};

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, a connection to accept, end of file or an error.
    Read,
    /// Room, a finished connect or an error.
    Write,
}

/// One direction of a descriptor.
struct Direction {
    /// Edges so far, times two. The low bit: one of them was an end, an error or urgent data. Changed under `waiters` only.
    edges: AtomicU32,
    /// Value of `edges` before an attempt that found the kernel's buffer empty (or full). While both are equal, nothing has come since.
    drained_at: AtomicU32,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    first: Option<Waiter>,
    more: Vec<Waiter>,
}

/// Never the value of `edges`: an odd one has at least one edge.
const NEVER: u32 = 1;

impl Default for Direction {
    fn default() -> Direction {
        Direction { edges: AtomicU32::new(0), drained_at: AtomicU32::new(NEVER), waiters: Mutex::default() }
    }
}

/// The edges that were known before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u32);

/// What epoll's user data points at. Never freed, only used again: an event that was fetched just before the descriptor was removed
/// finds another generation here.
struct Entry {
    generation: AtomicU32,
    /// VP whose set it is in, plus one; 0: none yet.
    vp: AtomicU32,
    directions: [Direction; 2],
}

static FREE: Mutex<Vec<&'static Entry>> = Mutex::new(Vec::new());

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entry {
    fn take() -> &'static Entry {
        lock(&FREE).pop().unwrap_or_else(|| {
            Box::leak(Box::new(Entry {
                generation: AtomicU32::new(0),
                vp: AtomicU32::new(0),
                directions: [Direction::default(), Direction::default()],
            }))
        })
    }

    /// User-space addresses have 47 bits; the generation's low 16 go above.
    fn token(&'static self) -> u64 {
        let generation = u64::from(self.generation.load(Ordering::Relaxed) & 0xffff);
        (std::ptr::from_ref(self).expose_provenance() as u64) | generation << 48
    }

    fn of_token(token: u64) -> Option<&'static Entry> {
        let address = (token & 0xffff_ffff_ffff) as usize;
        // SAFETY: tokens are made by `token` only; entries live for ever.
        let entry = unsafe { &*std::ptr::with_exposed_provenance::<Entry>(address) };
        (u64::from(entry.generation.load(Ordering::Acquire) & 0xffff) == token >> 48).then_some(entry)
    }

    /// Out of every set, used by nobody: ready for another descriptor.
    fn give_back(&'static self) {
        self.generation.fetch_add(1, Ordering::Release);
        for d in &self.directions {
            let mut waiters = lock(&d.waiters);
            waiters.first = None;
            waiters.more.clear();
            // A late event of the old descriptor may still count here: one attempt for nothing.
            d.edges.store(0, Ordering::Relaxed);
            d.drained_at.store(NEVER, Ordering::Relaxed);
        }
        lock(&FREE).push(self);
    }

    fn direction(&self, interest: Interest) -> &Direction {
        &self.directions[interest as usize]
    }

    /// `lasting`: a read may end short of it although more lies behind, or it makes no edge of its own later.
    fn edge(&self, interest: Interest, lasting: bool) {
        let d = self.direction(interest);
        let mut waiters = lock(&d.waiters);
        let edges = d.edges.load(Ordering::Relaxed).wrapping_add(2) | u32::from(lasting);
        // Release: who sees the new number makes an attempt that finds what it stands for.
        d.edges.store(edges, Ordering::Release);
        if let Some(w) = waiters.first.take() {
            w.wake();
        }
        for w in waiters.more.drain(..) {
            w.wake();
        }
    }
}

/// Readiness of one descriptor.
///
/// An attempt goes: [`seen`](Source::seen); the system call; then, if it said EAGAIN, [`wait`](Source::wait), or if it emptied
/// (filled) the kernel's buffer, [`drained`](Source::drained), both with what `seen` gave *before* the call. An edge that comes
/// between the call and either of them has another number, so it is never lost, however many use the source at once.
///
/// Drop it before the descriptor is closed.
pub struct Source {
    fd: RawFd,
    entry: std::sync::OnceLock<&'static Entry>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Source {
    /// No system call: the descriptor is registered at the first wait.
    pub fn new(fd: RawFd) -> Source {
        Source { fd, entry: std::sync::OnceLock::new() }
    }

    /// The edges so far: to be asked before an attempt.
    #[inline]
    pub fn seen(&self, interest: Interest) -> Seen {
        // Nothing registered: the registration itself reports what is ready then, as the first edge.
        Seen(self.entry.get().map_or(0, |e| e.direction(interest).edges.load(Ordering::Acquire)))
    }

    /// Blocks the microprocess until there is an edge that `seen` does not know. Call it after EAGAIN. A foreign kernel thread
    /// blocks in poll(2).
    ///
    /// May return early, for no reason: the caller tries again and comes back. A cancellation point.
    ///
    /// # Errors
    /// `TimedOut` at the deadline; what epoll_ctl(2) says when the descriptor cannot be registered.
    pub fn wait(&self, interest: Interest, seen: Seen, deadline: Option<Instant>) -> io::Result<()> {
        let Some(entry) = self.register()? else { return poll(self.fd, interest, deadline) };
        let me = park::current();
        let d = entry.direction(interest);
        loop {
            {
                let mut waiters = lock(&d.waiters);
                if d.edges.load(Ordering::Acquire) != seen.0 {
                    waiters.strike(&me);
                    return Ok(());
                }
                waiters.enrol(&me);
            }
            park::park(Wait::Io(self.fd), deadline);
            if d.edges.load(Ordering::Acquire) == seen.0 {
                if crate::cancel::would_unwind() {
                    lock(&d.waiters).strike(&me);
                    crate::cancel::point();
                    return Ok(());
                }
                if deadline.is_some_and(|d| Instant::now() >= d) {
                    lock(&d.waiters).strike(&me);
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// An attempt that began after `seen` emptied (filled) the kernel's buffer: the next one would say EAGAIN unless an edge
    /// has come since.
    #[inline]
    pub fn drained(&self, interest: Interest, seen: Seen) {
        if let Some(entry) = self.entry.get() {
            // Relaxed: a hint. Whichever of two values wins, it is true of its own edge number.
            entry.direction(interest).drained_at.store(seen.0, Ordering::Relaxed);
        }
    }

    /// False after [`drained`](Source::drained) until the next edge: skip the attempt and wait. Always true once the other side has ended its
    /// direction, there was an error, or urgent data came: then a short read does not mean empty.
    #[inline]
    pub fn likely_ready(&self, interest: Interest) -> bool {
        let Some(entry) = self.entry.get() else { return true };
        // A foreign thread waits by poll(2), which knows nothing of edges.
        if !park::on_vp() {
            return true;
        }
        let d = entry.direction(interest);
        let edges = d.edges.load(Ordering::Acquire);
        edges & 1 == 1 || edges != d.drained_at.load(Ordering::Relaxed)
    }

    /// The entry, registered with the VP under the caller or earlier with another; none on a foreign thread that comes first.
    fn register(&self) -> io::Result<Option<&'static Entry>> {
        let Some(carrier) = Carrier::current() else { return Ok(None) };
        if let Some(entry) = self.entry.get() {
            return Ok(Some(entry));
        }
        let entry = Entry::take();
        let vp = carrier.vp();
        entry.vp.store(vp.index as u32 + 1, Ordering::Relaxed);
        // Published only once it is in a set: who finds it relies on its edges.
        if let Err(e) = vp.poller.add(self.fd, entry.token()) {
            entry.give_back();
            return Err(e);
        }
        if self.entry.set(entry).is_err() {
            // Another VP registered it meanwhile.
            vp.poller.remove(self.fd);
            entry.give_back();
        }
        Ok(self.entry.get().copied())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let Some(&entry) = self.entry.get() else { return };
        let index = entry.vp.swap(0, Ordering::Relaxed);
        crate::instance::visit(|instance| {
            if let Some(vp) = instance.and_then(|i| i.vps.get(index.wrapping_sub(1) as usize)) {
                vp.poller.remove(self.fd);
            }
        });
        entry.give_back();
    }
}

impl Waiters {
    /// Once, however often it comes.
    fn enrol(&mut self, who: &Waiter) {
        if self.first.is_none() && !self.more.contains(who) {
            self.first = Some(who.clone());
        } else if self.first.as_ref() != Some(who) && !self.more.contains(who) {
            self.more.push(who.clone());
        }
    }

    fn strike(&mut self, who: &Waiter) {
        if self.first.as_ref() == Some(who) {
            self.first = None;
        }
        self.more.retain(|w| w != who);
    }
}

/// Events fetched at once. More than what is ready costs nothing; the rest comes at the next look.
const EVENTS: usize = 64;
/// User data of the VP's own eventfd: no entry lies at address 0.
const CALL: u64 = 0;

/// A VP's epoll set.
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// Resident in the VP and never a user's memory: the kernel writes it while nobody may fault.
    events: UnsafeCell<[libc::epoll_event; EVENTS]>,
    /// Descriptors in the set, the VP's own not counted.
    registered: AtomicUsize,
    /// epoll_pwait2 (Linux 5.11) takes nanoseconds.
    coarse: Cell<bool>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            let e = io::Error::last_os_error();
            return Err(io::Error::new(e.kind(), format!("epoll set of a virtual processor: {e}; raise the descriptor limit (ulimit -n)")));
        }
        Ok(Poller {
            // SAFETY: a fresh descriptor that nobody else owns.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: UnsafeCell::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS]),
            registered: AtomicUsize::new(0),
            coarse: Cell::new(false),
        })
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

    fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let both = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET) as u32;
        self.ctl(libc::EPOLL_CTL_ADD, fd, both, token)?;
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn remove(&self, fd: RawFd) {
        if self.ctl(libc::EPOLL_CTL_DEL, fd, 0, 0).is_ok() {
            self.registered.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.registered.load(Ordering::Relaxed) != 0
    }

    /// Takes in what is ready. Does not block. Owner only.
    pub(crate) fn poll_ready(&self) {
        self.wait(Some(Duration::ZERO));
    }

    /// Blocks the kernel thread until something is ready, the VP is called, or the time is over. Owner only.
    pub(crate) fn sleep(&self, time: Option<Duration>) {
        self.wait(time);
    }

    fn wait(&self, time: Option<Duration>) {
        let events = self.events.get().cast::<libc::epoll_event>();
        let n = self.wait_system_call(events, time);
        for i in 0..usize::try_from(n).unwrap_or(0) {
            // SAFETY: the kernel has filled the first n; owner only, and nothing below comes back here.
            let event = unsafe { events.add(i).read() };
            let (flags, token) = (event.events as i32, event.u64);
            if token == CALL {
                continue;
            }
            let Some(entry) = Entry::of_token(token) else { continue };
            let gone = libc::EPOLLHUP | libc::EPOLLERR;
            let lasting = gone | libc::EPOLLRDHUP | libc::EPOLLPRI;
            if flags & (libc::EPOLLIN | lasting) != 0 {
                entry.edge(Interest::Read, flags & lasting != 0);
            }
            if flags & (libc::EPOLLOUT | gone) != 0 {
                entry.edge(Interest::Write, flags & gone != 0);
            }
        }
    }

    fn wait_system_call(&self, events: *mut libc::epoll_event, time: Option<Duration>) -> i32 {
        let fd = self.epoll.as_raw_fd();
        if !self.coarse.get() && time != Some(Duration::ZERO) {
            let ts = time.map(crate::futex::timespec);
            let ts = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
            // SAFETY: room for EVENTS events, a null or live timespec, no signal mask.
            let n = unsafe {
                libc::syscall(libc::SYS_epoll_pwait2, fd, events, EVENTS as i32, ts, std::ptr::null::<libc::sigset_t>(), 8)
            };
            if n >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
                return n as i32;
            }
            self.coarse.set(true);
        }
        // Rounded up: waking too early would only mean another turn.
        let ms = time.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: room for EVENTS events.
        unsafe { libc::epoll_wait(fd, events, EVENTS as i32, ms) }
    }
}

/// The way of a foreign kernel thread: poll(2).
fn poll(fd: RawFd, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    let events = match interest {
        Interest::Read => libc::POLLIN | libc::POLLRDHUP,
        Interest::Write => libc::POLLOUT,
    };
    loop {
        let ts = deadline.map(|d| crate::futex::timespec(d.saturating_duration_since(Instant::now())));
        let ts = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
        let mut p = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one live pollfd, a null or live timespec, no signal mask.
        match unsafe { libc::ppoll(&mut p, 1, ts, std::ptr::null()) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            n if n > 0 => return Ok(()),
            _ => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
}
