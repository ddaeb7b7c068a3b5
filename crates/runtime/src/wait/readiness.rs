//! Readiness of descriptors: one edge-triggered epoll set per VP, each descriptor added once.
//!
//! The set belongs to the VP and moves with it between kernel threads, at no cost per connection.
//! No operation is ever in flight in the kernel for a microprocess. The operation is attempted
//! first, and only after EAGAIN does its caller wait here for the next edge. Edges are counted, so
//! that an edge between the attempt and the wait is not lost, and so that several microprocesses
//! may wait.
//!
//! Source: epoll(7), "edge-triggered": after a short read or write on a stream socket the next
//! attempt would return EAGAIN.

use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::idle::descriptor_entry::DescriptorEntry;
use crate::idle::future_wakers::FutureWaker;
use crate::kernel_thread::no_events::lock;
use crate::loom::atomic::{AtomicU8, Ordering};
use crate::memory::stack_trim;
use crate::microprocess::wait_reason::Wait;
use crate::wait::{foreign_poll, park};

pub use crate::idle::descriptor_entry::Seen;
pub use crate::idle::future_wakers::WakerKind;
pub use crate::idle::interest::Interest;

/// The place of one future among those that wait for a [`Source`]. It has one waker per direction.
#[derive(Debug)]
pub struct FuturePlace(u64);

impl FuturePlace {
    /// Creates a place that no other future has.
    #[allow(clippy::new_without_default)]
    pub fn new() -> FuturePlace {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        FuturePlace(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Readiness of one descriptor.
///
/// An attempt consists of [`seen`](Source::seen), the system call, and a third step: after EAGAIN,
/// [`wait`](Source::wait); if the call emptied (filled) the kernel's buffer,
/// [`drained`](Source::drained). Pass the value that `seen` returned *before* the system call to
/// the third step. An edge between the call and the third step has another number, so it is never
/// lost, however many threads use the source at once.
///
/// Drop the source before the descriptor is closed.
pub struct Source {
    pub(crate) fd: RawFd,
    /// Set once the descriptor is in an epoll set.
    pub(crate) entry: OnceLock<&'static DescriptorEntry>,
    /// [`OPEN`], [`CHANGING`] or [`RETIRED`].
    pub(crate) life: AtomicU8,
}

/// The descriptor may be registered.
pub(crate) const OPEN: u8 = 0;
/// It is being registered, or moved to another set.
pub(crate) const CHANGING: u8 = 1;
/// It is about to be closed, or is closed: see [`Source::retire`].
pub(crate) const RETIRED: u8 = 2;

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Source {
    /// Creates a source without a system call: the descriptor is registered at the first wait.
    pub fn new(fd: RawFd) -> Source {
        Source { fd, entry: OnceLock::new(), life: AtomicU8::new(OPEN) }
    }

    /// Returns whether [`retire`](Source::retire) was called.
    pub fn is_retired(&self) -> bool {
        self.life.load(Ordering::Acquire) == RETIRED
    }

    /// Returns the number of edges so far. Call it before an attempt.
    #[inline]
    pub fn seen(&self, interest: Interest) -> Seen {
        // Not registered yet: the registration will report what is ready as the first edge.
        Seen(self.entry.get().map_or(0, |e| e.edges(interest)))
    }

    /// Blocks the microprocess until there is an edge after `seen`. Call it after EAGAIN. A foreign
    /// kernel thread blocks in poll(2).
    ///
    /// May return spuriously, so the caller must retry in a loop. A cancellation point.
    ///
    /// # Errors
    /// `TimedOut` at the deadline; the error of epoll_ctl(2) if the descriptor cannot be
    /// registered.
    pub fn wait(
        &self,
        interest: Interest,
        seen: Seen,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        let Some(entry) = self.register()? else {
            return foreign_poll::poll(self.fd, interest, deadline);
        };
        let me = park::current();
        let mut why = Wait::Io(self.fd);
        loop {
            {
                let mut waiters = lock(&entry.waiters);
                if entry.edges(interest) != seen.0 {
                    waiters.strike(interest, &me);
                    return Ok(());
                }
                waiters.enrol(interest, &me);
            }
            // Before the park: a cancellation leaves one permit, which the caller's last wait may
            // have taken together with an edge whose data another thread has read since.
            if crate::wait::cancel::would_unwind() {
                lock(&entry.waiters).strike(interest, &me);
                crate::wait::cancel::point();
                return Ok(());
            }
            park::park(why, deadline);
            // An edge removes the waiters that it wakes from the list.
            if entry.edges(interest) != seen.0 {
                return Ok(());
            }
            if crate::wait::interrupt::is_due() {
                lock(&entry.waiters).strike(interest, &me);
                return Ok(());
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                lock(&entry.waiters).strike(interest, &me);
                return Err(io::ErrorKind::TimedOut.into());
            }
            if stack_trim::is_due() {
                stack_trim::give_stack_back();
                why = Wait::Idle(self.fd);
            }
        }
    }

    /// As [`wait`](Source::wait) for a future: `Pending` if there was no edge after `seen`, and the
    /// next edge calls `waker`, once. The waker replaces the former one of the place.
    ///
    /// [`withdraw`](Source::withdraw) the waker when the future is dropped. A `Foreign` waker needs
    /// a running service: see [`crate::waker_service`].
    ///
    /// # Errors
    /// That of epoll_ctl(2) if the descriptor cannot be registered.
    pub fn poll_wait(
        &self,
        interest: Interest,
        seen: Seen,
        place: &FuturePlace,
        waker: &Waker,
        kind: WakerKind,
    ) -> io::Result<Poll<()>> {
        let entry = self.register_for_future()?;
        // Cloned and dropped outside of the lock: a foreign waker's code runs then.
        let waker = waker.clone();
        let (former, poll) = {
            let mut waiters = lock(&entry.waiters);
            if entry.edges(interest) == seen.0 {
                let new = FutureWaker { interest, place: place.0, waker, kind };
                (waiters.enter_future(new), Poll::Pending)
            } else {
                (waiters.remove_future(interest, place.0), Poll::Ready(()))
            }
        };
        drop(former);
        Ok(poll)
    }

    /// Removes the waker of a place, if it was not called yet.
    pub fn withdraw(&self, interest: Interest, place: &FuturePlace) {
        if let Some(entry) = self.entry.get() {
            let removed = lock(&entry.waiters).remove_future(interest, place.0);
            drop(removed);
        }
    }

    /// Records that an attempt that began after `seen` emptied (filled) the kernel's buffer. The
    /// next attempt would return EAGAIN unless there is another edge.
    #[inline]
    pub fn drained(&self, interest: Interest, seen: Seen) {
        if let Some(entry) = self.entry.get() {
            // Relaxed: a hint. If two stores race, either value is correct for its own edge number.
            entry.drained_at[interest as usize].store(seen.0, Ordering::Relaxed);
        }
    }

    /// Whether there was an edge that lasts: the end of the file, an error, or urgent data.
    pub fn has_lasting_edge(&self, interest: Interest) -> bool {
        self.entry.get().is_some_and(|entry| entry.edges(interest) & 1 == 1)
    }

    /// Whether an attempt may succeed. False after [`drained`](Source::drained) until the next
    /// edge: skip the attempt and wait. Always true after the peer has closed its direction, an
    /// error or urgent data: a short read then does not mean that the buffer is empty.
    #[inline]
    pub fn likely_ready(&self, interest: Interest) -> bool {
        let Some(entry) = self.entry.get() else { return true };
        // A foreign thread waits with poll(2), for which edges are not counted.
        if !park::on_vp() {
            return true;
        }
        let edges = entry.edges(interest);
        edges & 1 == 1 || edges != entry.drained_at[interest as usize].load(Ordering::Relaxed)
    }
}
