//! Readiness of descriptors: one edge-triggered epoll set per VP, each descriptor added once.
//!
//! The set belongs to the VP and moves with it between kernel threads at no cost per connection.
//! Nothing is ever in flight in the kernel on a microprocess's behalf: an operation is tried, and
//! only after EAGAIN does its caller wait here for the next edge. Edges are counted, so that one
//! which comes between the attempt and the wait is not lost, and several may wait.
//!
//! Source: epoll(7), "edge-triggered": after a short read or write on a stream socket the next
//! attempt would say EAGAIN.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::idle::poller::{DescriptorEntry, Poller};
use crate::kernel_thread::no_events::lock;
use crate::memory::stack_trim;
use crate::microprocess::wait_reason::Wait;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::Vp;
use crate::upcall::sticky;
use crate::wait::park;

pub use crate::idle::poller::{Interest, Seen};

/// Readiness of one descriptor.
///
/// An attempt goes: [`seen`](Source::seen); the system call; then, if it said EAGAIN,
/// [`wait`](Source::wait), or if it emptied (filled) the kernel's buffer,
/// [`drained`](Source::drained), both with what `seen` gave *before* the call. An edge that comes
/// between the call and either of them has another number, so it is never lost, however many use
/// the source at once.
///
/// Drop it before the descriptor is closed.
pub struct Source {
    fd: RawFd,
    entry: std::sync::OnceLock<&'static DescriptorEntry>,
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
        // Nothing registered: the registration itself reports what is ready then, as the first
        // edge.
        Seen(self.entry.get().map_or(0, |e| e.edges(interest)))
    }

    /// Blocks the microprocess until there is an edge that `seen` does not know. Call it after
    /// EAGAIN. A foreign kernel thread blocks in poll(2).
    ///
    /// May return early, for no reason: the caller tries again and comes back. A cancellation
    /// point.
    ///
    /// # Errors
    /// `TimedOut` at the deadline; what epoll_ctl(2) says when the descriptor cannot be registered.
    pub fn wait(
        &self,
        interest: Interest,
        seen: Seen,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        let Some(entry) = self.register()? else { return poll(self.fd, interest, deadline) };
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
            park::park(why, deadline);
            // An edge takes those that it wakes off the list.
            if entry.edges(interest) != seen.0 {
                return Ok(());
            }
            if crate::wait::cancel::would_unwind() {
                lock(&entry.waiters).strike(interest, &me);
                crate::wait::cancel::point();
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

    /// An attempt that began after `seen` emptied (filled) the kernel's buffer: the next one would
    /// say EAGAIN unless an edge has come since.
    #[inline]
    pub fn drained(&self, interest: Interest, seen: Seen) {
        if let Some(entry) = self.entry.get() {
            // Relaxed: a hint. Whichever of two values wins, it is true of its own edge number.
            entry.drained_at[interest as usize].store(seen.0, Ordering::Relaxed);
        }
    }

    /// False after [`drained`](Source::drained) until the next edge: skip the attempt and wait.
    /// Always true once the other side has ended its direction, there was an error, or urgent data
    /// came: then a short read does not mean empty.
    #[inline]
    pub fn likely_ready(&self, interest: Interest) -> bool {
        let Some(entry) = self.entry.get() else { return true };
        // A foreign thread waits by poll(2), which knows nothing of edges.
        if !park::on_vp() {
            return true;
        }
        let edges = entry.edges(interest);
        edges & 1 == 1 || edges != entry.drained_at[interest as usize].load(Ordering::Relaxed)
    }

    /// The entry, in the set of the VP under the caller or, from earlier, of another one; none on a
    /// foreign thread, which polls.
    fn register(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        let Some(carrier) = Carrier::current() else { return self.register_elsewhere() };
        let vp = carrier.vp();
        self.register_at(vp).map(Some)
    }

    /// By a caller that has no VP: if it is sticky it is woken from where it was on one last.
    #[cold]
    fn register_elsewhere(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        let Some((kt, mp)) = sticky::current() else { return Ok(None) };
        let vps = &kt.instance().vps;
        let vp = &vps[usize::from(mp.home.load(Ordering::Relaxed)) % vps.len()];
        let was_used = vp.poller.is_used();
        let entry = self.register_at(vp)?;
        if !was_used {
            // Asleep it waits for no descriptor.
            vp.idle.wake();
        }
        Ok(Some(entry))
    }

    fn register_at(&self, vp: &Vp) -> io::Result<&'static DescriptorEntry> {
        if let Some(entry) = self.entry.get() {
            if vp.instance().poller_at(entry.home.load(Ordering::Relaxed)).is_none() {
                entry.move_in(&vp.poller, self.fd, vp.instance())?;
            }
            return Ok(entry);
        }
        let entry = DescriptorEntry::take();
        // Published only once it is in a set: a reader that finds it relies on its edges.
        if let Err(e) = entry.move_in(&vp.poller, self.fd, vp.instance()) {
            entry.give_back();
            return Err(e);
        }
        if self.entry.set(entry).is_err() {
            // Another VP registered it meanwhile.
            vp.poller.remove(self.fd);
            entry.give_back();
        }
        Ok(self.entry.get().copied().expect("set just now, by the caller or another"))
    }
}

impl DescriptorEntry {
    /// Into the set of `poller`, unless another VP of this instance was faster. The set of an
    /// instance that has ended is closed.
    fn move_in(&'static self, poller: &Poller, fd: RawFd, instance: &Instance) -> io::Result<()> {
        let _alone = lock(&self.waiters);
        if instance.poller_at(self.home.load(Ordering::Relaxed)).is_none() {
            poller.add(fd, self.token())?;
            self.home.store(poller.home, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let Some(&entry) = self.entry.get() else { return };
        let home = entry.home.load(Ordering::Relaxed);
        instance::visit(|instance| {
            if let Some(poller) = instance.and_then(|i| i.poller_at(home)) {
                poller.remove(self.fd);
            }
        });
        entry.give_back();
    }
}

/// The way of a foreign kernel thread: poll(2).
fn poll(fd: RawFd, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    let events = match interest {
        Interest::Read => libc::POLLIN | libc::POLLRDHUP,
        Interest::Write => libc::POLLOUT,
    };
    loop {
        // poll(2) ignores negative descriptors.
        let call = crate::microprocess::foreign_thread::cancel_descriptor().unwrap_or(-1);
        // After it: a request that came before there was a descriptor to call is seen here.
        crate::wait::cancel::point();
        let ts = deadline
            .map(|d| crate::process::futex::timespec(d.saturating_duration_since(Instant::now())));
        let ts = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
        let mut p = [
            libc::pollfd { fd, events, revents: 0 },
            libc::pollfd { fd: call, events: libc::POLLIN, revents: 0 },
        ];
        // SAFETY: two live pollfds, a null or live timespec, no signal mask.
        match unsafe { libc::ppoll(p.as_mut_ptr(), 2, ts, std::ptr::null()) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            // Called: cancelled, or to be once it is no longer masked.
            n if n > 0 && p[0].revents == 0 => {}
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

impl Instance {
    /// The set with that `home`, if it belongs to this instance.
    fn poller_at(&self, home: u32) -> Option<&Poller> {
        self.vps.get((home & 0x3ff) as usize).map(|vp| &vp.poller).filter(|p| p.home == home)
    }
}
