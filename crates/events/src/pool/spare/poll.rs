//! Waiting in the pool: one epoll set for all spares, and polls on behalf of silent sources.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::pool::kernel::Kernel;
use crate::pool::sched::Tick;

/// In epoll data: not a source's.
pub(crate) const CALL: u64 = 1 << 32;
/// In epoll data, with a VP's number: see [`Kernel::watch_once`].
const READY: u64 = 1 << 33;

/// epoll_pwait2(2), Linux 5.11; before that a millisecond is the least that epoll_wait knows. Not
/// ppoll(2) on the epoll set: that asks the perf events in it, which forget that they rang.
fn wait_exactly(epoll: i32, events: &mut [libc::epoll_event], time: Option<Duration>) -> usize {
    static IS_OLD: AtomicBool = AtomicBool::new(false);
    let most = events.len() as i32;
    if let Some(time) = time
        && !IS_OLD.load(Ordering::Relaxed)
    {
        let time = libc::timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: room for `most` events, and a live timespec.
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll,
                events.as_mut_ptr(),
                most,
                &raw const time,
                no_mask,
                0usize,
            )
        };
        if n >= 0 {
            return n as usize;
        }
        // SAFETY: this thread's errno. ENOSYS, or whatever a seccomp filter returns for an unknown
        // call: asking again would wait for nothing.
        if unsafe { *libc::__errno_location() } == libc::EINTR {
            return 0;
        }
        IS_OLD.store(true, Ordering::Relaxed);
    }
    let timeout =
        time.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: room for `most` events.
    let n = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), most, timeout) };
    usize::try_from(n).unwrap_or(0)
}

/// Slots that a source reported, delivered after the source has released its locks: the user
/// scheduler may take long to answer.
#[derive(Default)]
struct BlockedBatch {
    slots: [u32; 32],
    n: usize,
}

impl BlockedBatch {
    fn push(&mut self, index: u32, kernel: &Kernel) {
        match self.slots.get_mut(self.n) {
            Some(place) => (*place, self.n) = (index, self.n + 1),
            // Without allocating: what sleeps may hold the allocator's lock.
            None => kernel.blocked(index),
        }
    }

    fn deliver(&self, kernel: &Kernel) {
        for index in &self.slots[..self.n] {
            kernel.blocked(*index);
        }
    }
}

impl Kernel {
    /// Calls [`ready`](crate::sched::UserScheduler::ready) once when `fd` becomes readable from now
    /// on.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn watch_once(&self, vp: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32,
            u64: READY | u64::from(vp),
        };
        for op in [libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_ADD] {
            // SAFETY: a live event.
            if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd.as_raw_fd(), &mut event) }
                == 0
            {
                return Ok(());
            }
        }
        Err(io::Error::last_os_error())
    }

    /// Sleeps until a source or a caller wakes the thread, or `time` has passed, and handles the
    /// events.
    pub(crate) fn wait_events(&self, time: Option<Duration>) {
        const MOST: usize = 16;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let n = wait_exactly(self.epoll.as_raw_fd(), &mut events, time);
        self.handle_events(&events[..n]);
    }

    fn handle_events(&self, events: &[libc::epoll_event]) {
        for event in events {
            match u32::try_from(event.u64) {
                Ok(data) => {
                    let mut batch = BlockedBatch::default();
                    self.source.drain(data, &self.page, &mut |index| batch.push(index, self));
                    batch.deliver(self);
                }
                Err(_) if event.u64 & READY != 0 => {
                    let vp = event.u64 as u32;
                    if let Some(scheduler) = self.user().filter(|_| vp < self.vps) {
                        scheduler.ready(vp);
                    }
                }
                Err(_) => {
                    let mut n = 0u64;
                    // SAFETY: 8 live bytes; EAGAIN is fine.
                    unsafe { libc::read(self.call.as_raw_fd(), (&raw mut n).cast(), 8) };
                    self.take_lent();
                }
            }
        }
    }

    /// Polls the sources that do not report by themselves, and runs the timekeeper's tick. One of
    /// the waiting threads does so, and sleeps between two polls. Returns false if there is nothing
    /// to poll, or another thread polls.
    pub(crate) fn poll_sources(&self, me: u32, until: Option<Instant>) -> bool {
        // Both ways acquire and release: one that found it taken has said before what there is to
        // look for.
        if self.poller.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Nothing but the release.
            self.poller.fetch_or(0, Ordering::AcqRel);
            return false;
        }
        let mut batch = BlockedBatch::default();
        let pause = self.source.poll(&self.page, &mut |index| batch.push(index, self));
        batch.deliver(self);
        let (tick, rests) = match self.tick() {
            Tick::Again(after) => (Some(after), false),
            Tick::Rest(after) => (after, pause.is_none()),
        };
        let pause = [pause, tick].into_iter().flatten().min();
        // What was found is to be carried, by the caller first of all.
        let found = !self.lock().ready.is_empty();
        let sleeps = pause.filter(|_| !found);
        let time = sleeps.map(|pause| {
            until.map_or(pause, |u| pause.min(u.saturating_duration_since(Instant::now())))
        });
        if !rests && time.is_some() {
            self.wait_events(time);
        }
        // Not if it was taken from the caller, which was long in coming.
        let _ = self.poller.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Acquire);
        // At rest any woken thread is to look: the call may not come to the caller. An earlier one,
        // to a thread that found the watch taken, is seen.
        if rests && time.is_some() && !self.is_timekeeper_running() {
            self.wait_events(time);
        }
        // Something may have come up between the look and this: the thread that saw it relied on
        // the caller.
        found || pause.is_some() || self.needs_poll()
    }
}
