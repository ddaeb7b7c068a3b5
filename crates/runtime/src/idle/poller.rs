//! The epoll set of a virtual processor: one edge-triggered set, each descriptor added once.
//!
//! `wait/readiness.rs` waits for the edges that are counted in the
//! [entry](crate::idle::descriptor_entry) of a descriptor.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_arch::descriptor::Descriptor;
use kumihimo_arch::kernel::epoll_ctl;

use kumihimo_events::wakeup::lost_descriptor;

use crate::idle::alarm::{Alarm, Limit};
use crate::idle::descriptor_entry::DescriptorEntry;
use crate::microprocess::prefetch::prefetch;
use crate::microprocess::waiter::Waiter;
use crate::process::clock::monotonic;

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
    epoll: Descriptor,
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
    alarm: Alarm,
}

impl Poller {
    pub(crate) fn new(vp: usize) -> io::Result<Poller> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // SAFETY: no pointers.
        let fd = unsafe { kumihimo_arch::kernel::epoll_create1(libc::EPOLL_CLOEXEC) };
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
            epoll: unsafe { Descriptor::from_raw_fd(fd) },
            events: UnsafeCell::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS]),
            due: UnsafeCell::new([const { None }; EVENTS]),
            registered: AtomicUsize::new(0),
            coarse: Cell::new(false),
            heard: Cell::new(0),
            alarm: Alarm::new(CALL),
        })
    }

    /// Returns the set's descriptor, which is readable when something in the set is ready.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn control(&self, operation: i32, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        epoll_ctl(self.epoll.as_raw_fd(), operation, fd, events, token)
    }

    pub(crate) fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let both =
            libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, both, token)?;
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        if self.control(libc::EPOLL_CTL_DEL, fd, 0, 0).is_ok() {
            self.registered.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds the set of another VP, which is parked: the owner of this set then serves that set's
    /// descriptors, too. The other set stays open for as long as this one is used.
    pub(crate) fn add_set(&self, other: &Poller) -> io::Result<()> {
        let fd = other.epoll.as_raw_fd();
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, (fd as u64) << 1 | NESTED)?;
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
        let limit = time.map(|time| self.alarm.limit(self.epoll.as_raw_fd(), monotonic(), time));
        let (time, is_alarm) = match limit {
            None => (None, false),
            Some(Limit::Own(time)) => (Some(time), false),
            Some(Limit::Alarm(time)) => (Some(time), true),
        };
        if self.wait(time, false) == Some(0) && is_alarm {
            self.alarm.lose();
        }
    }

    /// Returns the number of events; `None` after a failure or a signal.
    fn wait(&self, time: Option<Duration>, first: bool) -> Option<usize> {
        let events = self.events.get().cast::<libc::epoll_event>();
        let found = usize::try_from(self.wait_system_call(events, time)).ok();
        let n = found.unwrap_or(0);
        let mut sets = [-1; SETS];
        self.wake_waiters(n, first, &mut sets);
        for set in sets.into_iter().take_while(|set| *set >= 0) {
            // SAFETY: room for EVENTS events. The set's VP polls it at the same time at most, and
            // each edge is reported to one of both.
            let n = unsafe { kumihimo_arch::kernel::epoll_wait(set, events, EVENTS as i32, 0) };
            self.wake_waiters(usize::try_from(n).unwrap_or(0), first, &mut [-1; SETS]);
        }
        found
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
                kumihimo_arch::call!(
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
        let n = unsafe { kumihimo_arch::kernel::epoll_wait(fd, events, EVENTS as i32, ms) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                lost_descriptor(fd, "the epoll set of a virtual processor", &error);
            }
        }
        n
    }
}

#[cfg(test)]
mod tests;
