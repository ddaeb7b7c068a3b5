//! The entry of a descriptor: the edges that epoll has reported so far, and the waiters for the
//! next one.
//!
//! [`crate::wait::readiness`] waits on it, and a VP's [`Poller`](crate::idle::poller::Poller)
//! reports to it. The models of `crates/io` run both sides.

use std::task::Waker;

use crate::idle::future_wakers::{FutureWaker, FutureWakers};
use crate::idle::interest::Interest;
use crate::kernel_thread::no_events::lock;
use crate::loom::Mutex;
use crate::loom::atomic::{AtomicU32, Ordering};
use crate::microprocess::waiter::Waiter;

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

#[repr(C)]
pub(crate) struct Waiters {
    /// The usual case: a single reader. Unset while the first reader is in `others`.
    reader: Option<Waiter>,
    /// Kept after its first use. Boxed, so that it needs little room while unused.
    others: Option<Box<Others>>,
}

#[derive(Default)]
struct Others {
    /// Writers and further readers.
    threads: Vec<(Interest, Waiter)>,
    futures: FutureWakers,
}

// loom's types have other sizes.
const _: () = assert!(cfg!(loom) || size_of::<DescriptorEntry>() == 64);

#[cfg(not(loom))]
static FREE: Mutex<Vec<&'static DescriptorEntry>> = Mutex::new(Vec::new());

impl DescriptorEntry {
    #[cfg(not(loom))]
    pub(crate) fn take() -> &'static DescriptorEntry {
        lock(&FREE).pop().unwrap_or_else(|| Box::leak(Box::new(DescriptorEntry::new())))
    }

    pub(crate) fn new() -> DescriptorEntry {
        DescriptorEntry {
            edges: [AtomicU32::new(0), AtomicU32::new(0)],
            drained_at: [AtomicU32::new(NEVER), AtomicU32::new(NEVER)],
            generation: AtomicU32::new(0),
            home: AtomicU32::new(0),
            waiters: Mutex::new(Waiters { reader: None, others: None }),
        }
    }

    /// Returns the user data: the address, which has 47 bits in user space, with the low 16 bits of
    /// the generation above it.
    pub(crate) fn token(&'static self) -> u64 {
        let generation = u64::from(self.generation.load(Ordering::Relaxed) & 0xffff);
        (std::ptr::from_ref(self).expose_provenance() as u64) | generation << 48
    }

    pub(crate) fn address(token: u64) -> *const DescriptorEntry {
        std::ptr::with_exposed_provenance((token & 0xffff_ffff_ffff) as usize)
    }

    pub(crate) fn of_token(token: u64) -> Option<&'static DescriptorEntry> {
        // SAFETY: only `token` makes tokens; entries live for ever.
        let entry = unsafe { &*DescriptorEntry::address(token) };
        (u64::from(entry.generation.load(Ordering::Acquire) & 0xffff) == token >> 48)
            .then_some(entry)
    }

    /// Returns the entry to the free list. It is in no set, and no source uses it.
    #[cfg(not(loom))]
    pub(crate) fn give_back(&'static self) {
        self.generation.fetch_add(1, Ordering::Release);
        let futures = {
            let mut waiters = lock(&self.waiters);
            waiters.reader = None;
            let others = waiters.others.as_mut();
            let futures = others.map(|others| {
                others.threads.clear();
                others.futures.take_all()
            });
            for i in 0..2 {
                // A late event of the old descriptor may still count here: one superfluous attempt.
                self.edges[i].store(0, Ordering::Relaxed);
                self.drained_at[i].store(NEVER, Ordering::Relaxed);
            }
            self.home.store(0, Ordering::Relaxed);
            futures
        };
        lock(&FREE).push(self);
        // Code of the program runs here.
        drop(futures);
    }

    pub(crate) fn edges(&self, interest: Interest) -> u32 {
        self.edges[interest as usize].load(Ordering::Acquire)
    }

    /// Counts the edges that epoll reports, and wakes the waiters. Returns the reader, which the
    /// caller wakes.
    pub(crate) fn report(&self, flags: i32) -> Option<Waiter> {
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
            others.threads.retain(|(interest, w)| {
                let came = if *interest == Interest::Read { read } else { write };
                if came {
                    w.wake();
                }
                !came
            });
            others.futures.report(read, write);
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
        let others = &mut self.others.get_or_insert_default().threads;
        if !others.iter().any(|(i, w)| *i == interest && w == who) {
            others.push((interest, who.clone()));
        }
    }

    pub(crate) fn strike(&mut self, interest: Interest, who: &Waiter) {
        if interest == Interest::Read && self.reader.as_ref() == Some(who) {
            self.reader = None;
        }
        if let Some(others) = &mut self.others {
            others.threads.retain(|(i, w)| *i != interest || w != who);
        }
    }

    /// Enters the waker of a future. Returns the former waker of its place, which the caller drops
    /// after it has released the lock.
    pub(crate) fn enter_future(&mut self, future: FutureWaker) -> Option<Waker> {
        self.others.get_or_insert_default().futures.enter(future)
    }

    /// Removes the waker of a future's place, as above.
    pub(crate) fn remove_future(&mut self, interest: Interest, place: u64) -> Option<Waker> {
        self.others.as_mut()?.futures.remove(interest, place)
    }
}
