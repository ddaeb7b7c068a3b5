//! Waiting in the pool: one epoll set for all spares, and polls for sources that do not report by
//! themselves.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumihimo_arch::kernel::epoll_ctl;

use crate::linux::wakeup::lost_descriptor;
use crate::pool::kernel::Kernel;
use crate::pool::sched::Tick;

/// In epoll data: a wake-up by `call`, which belongs to no source.
pub(crate) const CALL: u64 = 1 << 32;
/// In epoll data, with a VP's number: a descriptor of [`Kernel::watch_once`].
const READY: u64 = 1 << 33;

/// Waits with a resolution of nanoseconds: epoll_pwait2(2), Linux 5.11. On older kernels
/// epoll_wait(2) waits for whole milliseconds.
///
/// ppoll(2) on the epoll set is no substitute. It polls the perf events in the set, and `perf_poll`
/// (kernel/events/core.c) clears the readiness that it returns.
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
            kumihimo_arch::call!(
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
        // The error is ENOSYS, or the error that a seccomp filter returns for an unknown call. A
        // retry would fail again.
        // SAFETY: this thread's errno.
        if unsafe { *libc::__errno_location() } == libc::EINTR {
            return 0;
        }
        IS_OLD.store(true, Ordering::Relaxed);
    }
    let timeout =
        time.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: room for `most` events.
    let n = unsafe { kumihimo_arch::kernel::epoll_wait(epoll, events.as_mut_ptr(), most, timeout) };
    match usize::try_from(n) {
        Ok(n) => n,
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => 0,
            error => lost_descriptor(epoll, "the epoll set of its kernel threads", &error),
        },
    }
}

/// Slots that a source reported. They are delivered after the source has released its locks, since
/// the user scheduler may take long to return.
#[derive(Default)]
struct BlockedBatch {
    slots: [u32; 32],
    n: usize,
}

impl BlockedBatch {
    fn push(&mut self, index: u32, kernel: &Kernel) {
        match self.slots.get_mut(self.n) {
            Some(place) => (*place, self.n) = (index, self.n + 1),
            // Does not allocate: the sleeping thread may hold the allocator's lock.
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
    /// Calls [`ready`](crate::sched::UserScheduler::ready) once when `fd` is readable.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn watch_once(&self, vp: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        let (events, token) = (libc::EPOLLIN | libc::EPOLLONESHOT, READY | u64::from(vp));
        let control =
            |operation| epoll_ctl(self.epoll.as_raw_fd(), operation, fd.as_raw_fd(), events, token);
        control(libc::EPOLL_CTL_MOD).or_else(|_| control(libc::EPOLL_CTL_ADD))
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
                Err(_) => self.take_lent(),
            }
        }
    }

    /// Polls the sources that do not report by themselves, and runs the timekeeper's tick. One of
    /// the waiting threads does so, and sleeps between two polls. Returns false if there is nothing
    /// to poll, or another thread polls.
    pub(crate) fn poll_sources(&self, me: u32, until: Option<Instant>) -> bool {
        // Both outcomes acquire and release: a thread that finds the role taken relies on the
        // poller to see the work that it published before.
        if self.poller.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Changes nothing: it adds the release that a failed exchange lacks.
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
        // If a VP was found, the caller carries it instead of sleeping.
        let found = !self.lock().ready.is_empty();
        let sleeps = pause.filter(|_| !found);
        let time = sleeps.map(|pause| {
            until.map_or(pause, |u| pause.min(u.saturating_duration_since(Instant::now())))
        });
        if !rests && time.is_some() {
            self.wait_events(time);
        }
        // Fails if the watchdog has given the role to another thread because the caller was stuck.
        let _ = self.poller.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Acquire);
        // At rest the caller waits without the role, so that any thread that `start_timekeeper`
        // wakes can poll. An earlier wake-up, of a thread that found the role taken, is visible in
        // the timekeeper's state.
        if rests && time.is_some() && !self.is_timekeeper_running() {
            self.wait_events(time);
        }
        // Work may have appeared between the poll and the release of the role. The thread that
        // published it relies on the caller to poll again.
        found || pause.is_some() || self.needs_poll()
    }
}
