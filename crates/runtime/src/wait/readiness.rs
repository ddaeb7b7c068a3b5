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
/// An attempt consists of [`seen`](Source::seen), the system call, and a third step: after EAGAIN,
/// [`wait`](Source::wait); if the call emptied (filled) the kernel's buffer,
/// [`drained`](Source::drained). Pass the value that `seen` returned *before* the system call to
/// the third step. An edge between the call and the third step has another number, so it is never
/// lost, however many threads use the source at once.
///
/// Drop the source before the descriptor is closed.
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
    /// Creates a source without a system call: the descriptor is registered at the first wait.
    pub fn new(fd: RawFd) -> Source {
        Source { fd, entry: std::sync::OnceLock::new() }
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
            // An edge removes the waiters that it wakes from the list.
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

    /// Records that an attempt that began after `seen` emptied (filled) the kernel's buffer. The
    /// next attempt would return EAGAIN unless there is another edge.
    #[inline]
    pub fn drained(&self, interest: Interest, seen: Seen) {
        if let Some(entry) = self.entry.get() {
            // Relaxed: a hint. If two stores race, either value is correct for its own edge number.
            entry.drained_at[interest as usize].store(seen.0, Ordering::Relaxed);
        }
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

    /// Returns the entry, registered in the set of the caller's VP, or earlier in that of another
    /// VP. Returns `None` on a foreign thread, which uses poll(2).
    fn register(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        let Some(carrier) = Carrier::current() else { return self.register_elsewhere() };
        let vp = carrier.vp();
        self.register_at(vp).map(Some)
    }

    /// Registers for a caller without a VP. A sticky caller is woken by the VP on which it ran
    /// last.
    #[cold]
    fn register_elsewhere(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        let Some((kt, mp)) = sticky::current() else { return Ok(None) };
        let instance = kt.instance();
        let vp = &instance.vps[instance.open_home(mp)];
        let was_used = vp.poller.is_used();
        let entry = self.register_at(vp)?;
        if !was_used || vp.is_retired() {
            // The VP may sleep on its futex, or be parked, without its descriptors.
            vp.idle.wake();
        }
        Ok(Some(entry))
    }

    fn register_at(&self, vp: &Vp) -> io::Result<&'static DescriptorEntry> {
        if let Some(entry) = self.entry.get() {
            if !vp.instance().is_polled_at(entry.home.load(Ordering::Relaxed)) {
                entry.move_in(&vp.poller, self.fd, vp.instance())?;
            }
            return Ok(entry);
        }
        let entry = DescriptorEntry::take();
        // Published only after it is in a set, because readers rely on its edges.
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
    /// Adds the descriptor to the set of `poller`, unless another VP of this instance was faster.
    /// An entry of an instance that has ended is added again: its set is closed. A descriptor in
    /// the set of a retired VP moves. An edge between the two calls is not lost: the addition
    /// reports what is ready as a further edge.
    fn move_in(&'static self, poller: &Poller, fd: RawFd, instance: &Instance) -> io::Result<()> {
        let _alone = lock(&self.waiters);
        let home = self.home.load(Ordering::Relaxed);
        if instance.is_polled_at(home) || home == poller.home {
            return Ok(());
        }
        if let Some(retired) = instance.poller_at(home) {
            retired.remove(fd);
            // In no set, if the addition fails.
            self.home.store(0, Ordering::Relaxed);
        }
        poller.add(fd, self.token())?;
        self.home.store(poller.home, Ordering::Relaxed);
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

/// Waits on a foreign kernel thread, with poll(2).
fn poll(fd: RawFd, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    let events = match interest {
        Interest::Read => libc::POLLIN | libc::POLLRDHUP,
        Interest::Write => libc::POLLOUT,
    };
    loop {
        // poll(2) ignores negative descriptors.
        let call = crate::microprocess::foreign_thread::cancel_descriptor().unwrap_or(-1);
        // After the above: a request that arrived before the descriptor existed is observed here.
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
            // The cancel descriptor is ready: cancelled, or to be cancelled once it is no longer
            // masked.
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
    /// Returns the poller with that `home`, if it belongs to this instance.
    fn poller_at(&self, home: u32) -> Option<&Poller> {
        self.vps.get((home & 0x3ff) as usize).map(|vp| &vp.poller).filter(|p| p.home == home)
    }

    /// Whether the poller with that `home` belongs to a VP of this instance that is not retired.
    fn is_polled_at(&self, home: u32) -> bool {
        self.poller_at(home).is_some() && !self.vps[(home & 0x3ff) as usize].is_retired()
    }
}
