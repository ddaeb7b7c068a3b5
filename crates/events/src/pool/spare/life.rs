//! Life of the pool's kernel threads, and how one of them begins to carry a virtual processor.
//!
//! Spares wait in one epoll set. The spare that came last wakes first: `ep_poll` (fs/eventpoll.c)
//! queues exclusive waiters at the head. So its caches are warm, and surplus spares time out.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kumihimo_arch::{kernel_attributes, signal_mask};

use crate::handoff::slot;
use crate::handoff::thread_state::ThreadState;
use crate::linux::limit;
use crate::pool::kernel::Kernel;
use crate::pool::kernel_thread::KernelThread;
use crate::pool::ready_list::Pool;
use crate::pool::record::Step;
use crate::pool::sched::UserScheduler;
use crate::source::Kind;

/// The stack of a kernel thread, and of the starter. It holds the idle part of a user scheduler,
/// signal frames and the frames of std's thread start.
pub(super) const KERNEL_STACK: usize = 256 << 10;
/// The time that a surplus kernel thread stays. Blocks come in bursts, and starting a thread costs
/// about as much as a hundred hand-offs.
const LINGER: Duration = Duration::from_millis(100);

fn in_source(kind: Kind, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("events from {kind}: {e}"))
}

/// Aborts the process when a kernel thread of the pool panics: the VP that it carries, or the
/// reports that it waits for, would be lost.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Kernel {
    /// Starts one more kernel thread, which begins in the pool. The caller waits for the allocator,
    /// and keeps the pool's lock: a thread that leaves the pool calls
    /// [`request_start`](Kernel::request_start) instead.
    pub(crate) fn start(self: &Arc<Kernel>, pool: &mut Pool) -> io::Result<()> {
        let index = self.reserve(pool)?;
        let started = self.spawn(index);
        self.is_short.store(started.is_err(), Ordering::Relaxed);
        let thread = started.inspect_err(|_| self.cancel(pool, index))?;
        // Drop the handles of ended threads, so that the list does not grow with the number of
        // blocks.
        pool.handles.retain(|thread| !thread.is_finished());
        pool.handles.push(thread);
        Ok(())
    }

    /// Takes a slot for a kernel thread to start, which counts as waiting in the pool.
    pub(crate) fn reserve(&self, pool: &mut Pool) -> io::Result<u32> {
        let slot = if pool.threads < self.limit.threads { pool.free_slots.pop() } else { None };
        let Some(index) = slot else {
            self.is_short.store(true, Ordering::Relaxed);
            let text = format!("the limit of {} is reached", self.limit);
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        };
        self.high.fetch_max(index, Ordering::Relaxed);
        pool.threads += 1;
        self.enter_waiting(pool);
        Ok(index)
    }

    /// Reverts [`reserve`](Kernel::reserve).
    pub(crate) fn cancel(&self, pool: &mut Pool, index: u32) {
        self.leave_waiting(pool);
        pool.threads -= 1;
        pool.free_slots.push(index);
        self.ended.notify_all();
    }

    /// Starts the kernel thread of a reserved slot.
    pub(crate) fn spawn(self: &Arc<Kernel>, index: u32) -> io::Result<JoinHandle<()>> {
        let kernel = self.clone();
        // The user scheduler sets another mask when the thread carries something.
        let builder = std::thread::Builder::new().name("kumihimo".into()).stack_size(KERNEL_STACK);
        signal_mask::spawn_blocked(builder, move || kernel.live(index))
    }

    /// Counts a failure to start a kernel thread, and prints the first one.
    #[cold]
    pub(crate) fn exhausted(&self, what: &io::Error) {
        if self.exhausted.fetch_add(1, Ordering::Relaxed) == 0 {
            // Ends the process if the program has closed the descriptors, the event source's
            // probably among them.
            self.call.wake();
            let is_refused = what.raw_os_error() == Some(libc::EAGAIN);
            let cause = if is_refused { limit::likely_cause() } else { String::new() };
            let comma = if cause.is_empty() { "" } else { ": " };
            eprintln!(
                "kumihimo: no further kernel thread for a virtual processor ({what}{comma}{cause}): a microprocess that \
                 blocks now may hold its virtual processor up until it returns; raise KUMI_KERNEL_THREADS (or the \
                 program's Builder::max_kernel_threads), ulimit -u or ulimit -n, or block in fewer microprocesses \
                 at a time"
            );
        }
    }

    /// Runs a kernel thread: waits in the pool, carries a VP, loses it, and waits again.
    fn live(self: Arc<Kernel>, index: u32) {
        let _abort = AbortOnPanic;
        // Timers are coalesced over 50 us by default (prctl(2), PR_SET_TIMERSLACK).
        kernel_attributes::set_timer_slack(1);
        // SAFETY: takes nothing, cannot fail.
        let tid = unsafe { kumihimo_arch::call!(libc::SYS_gettid) } as u32;
        if !self.user().is_some_and(|scheduler| scheduler.sets_signal_masks()) {
            signal_mask::set(self.signal_mask);
        }
        self.page.renew(index, tid);
        let thread = KernelThread::new(self.clone(), index);
        if let Some(scheduler) = self.user() {
            scheduler.thread(&thread, &mut || self.work(&thread, &*scheduler));
        } else {
            self.leave_waiting(&mut self.lock());
        }
        let slot = thread.slot();
        slot.tid.store(0, Ordering::Relaxed);
        slot.state.store(ThreadState::Ended as u32, Ordering::Release);
        let mut pool = self.lock();
        pool.threads -= 1;
        pool.free_slots.push(index);
        drop(pool);
        self.ended.notify_all();
    }

    fn work(self: &Arc<Kernel>, thread: &KernelThread, scheduler: &dyn UserScheduler) {
        let slot = thread.slot();
        // A thread without events can carry a VP as well, but a microprocess that blocks on it
        // holds the VP up. The thread tries again before it carries the next VP.
        self.attach(thread);
        while let Some((token, priority)) = self.wait(thread) {
            let vp = slot::vp_of(token, self.vps).expect("a token from the ready list");
            slot.priority.store(priority, Ordering::Relaxed);
            // After a refusal `attach` may switch the thread to the fallback source.
            if let Err(e) = self.begin(thread).or_else(|_| {
                self.source.attach(thread.index())?;
                self.begin(thread)
            }) {
                self.exhausted(&in_source(self.source.kind(), &e));
            }
            thread.install_vp(token);
            self.record(Step::Resumed, thread.index(), None);
            scheduler.resumed(vp, thread);
            self.source.end(thread.index(), slot.times.load(Ordering::Relaxed));
            slot.state.store(ThreadState::Kernel as u32, Ordering::Relaxed);
            if thread.token() != 0 || thread.must_retire() || !self.go_to_pool(thread) {
                break;
            }
        }
        self.source.detach(thread.index());
        self.doorbells.retire(thread.index(), slot);
    }

    fn attach(&self, thread: &KernelThread) {
        if let Err(e) = self.source.attach(thread.index()) {
            self.exhausted(&in_source(self.source.kind(), &e));
        }
    }

    /// Puts the kernel thread into the pool (P0: last part of `yield`). Returns false if the thread
    /// must end. Otherwise it lingers there: see [`wait`](Kernel::wait).
    fn go_to_pool(&self, thread: &KernelThread) -> bool {
        let mut pool = self.lock();
        if pool.dismissed {
            return false;
        }
        self.enter_waiting(&mut pool);
        self.record(Step::Reclaimed, thread.index(), None);
        true
    }

    /// Makes the source report sleeps of the calling kernel thread from now on. Async-signal-safe
    /// with a source that reports returns, if the source allows the kernel thread to carry a VP at
    /// all.
    pub(crate) fn begin(&self, thread: &KernelThread) -> io::Result<()> {
        let time = thread.slot().times.fetch_add(1, Ordering::Relaxed) + 1;
        self.source.begin(thread.index(), time, self.epoll.as_fd())
    }

    /// Waits in the pool until there is a VP to carry. Returns `None` if the kernel thread must
    /// end; it then no longer counts as waiting.
    fn wait(self: &Arc<Kernel>, thread: &KernelThread) -> Option<(u64, i32)> {
        let slot = thread.slot();
        if thread.has_passed_on() {
            // Handle blocks that were reported while the pool was empty before the VP that was
            // passed on.
            let now = Instant::now();
            if !self.poll_sources(thread.index(), Some(now)) {
                self.wait_events(Some(Duration::ZERO));
            }
        }
        let mut lingers_until = None;
        loop {
            slot.state.store(ThreadState::Kernel as u32, Ordering::Relaxed);
            let mut pool = self.lock();
            self.take_called(&mut pool);
            if let Some(ready) = pool.ready.pop() {
                self.leave_waiting(&mut pool);
                slot.state.store(ThreadState::Runnable as u32, Ordering::Relaxed);
                self.record(Step::Called, thread.index(), u8::try_from(ready.priority).ok());
                let more = !pool.ready.is_empty();
                self.ensure_spare(&mut pool);
                let was_last = pool.available() == 0;
                drop(pool);
                if was_last {
                    self.report_no_spare();
                }
                // Wake another thread for the other ready VPs, or to poll in the caller's place.
                if more || self.needs_poll() {
                    self.wake_one();
                }
                return Some((ready.token, ready.priority));
            }
            let now = Instant::now();
            let superfluous = pool.available() > self.min_spares();
            let until = *lingers_until.get_or_insert(now + LINGER);
            if pool.dismissed || superfluous && now >= until {
                self.leave_waiting(&mut pool);
                let another = pool.waiting > if pool.dismissed { 0 } else { self.min_spares() };
                drop(pool);
                // The caller may have been the poller.
                if another || self.needs_poll() {
                    self.wake_one();
                }
                return None;
            }
            drop(pool);
            slot.state.store(ThreadState::Sleeping as u32, Ordering::Relaxed);
            let until = superfluous.then_some(until);
            if !self.poll_sources(thread.index(), until) {
                self.wait_events(until.map(|u| u.saturating_duration_since(now)));
            }
        }
    }

    fn enter_waiting(&self, pool: &mut Pool) {
        pool.waiting += 1;
        self.spares.store(pool.available(), Ordering::Relaxed);
    }

    fn leave_waiting(&self, pool: &mut Pool) {
        pool.waiting -= 1;
        self.spares.store(pool.available(), Ordering::Relaxed);
    }

    /// Returns the number of unbound kernel threads that stay: at least one if the source reports
    /// blocks.
    fn min_spares(&self) -> usize {
        self.concurrency.load(Ordering::Relaxed).max(usize::from(self.source.reports_blocks()))
    }

    /// Ensures that another thread waits when the caller leaves the pool: for the VPs that are
    /// ready already, for those that were lent since it looked, and for the next event.
    fn ensure_spare(self: &Arc<Kernel>, pool: &mut Pool) {
        let looks = self.source.reports_blocks() || !pool.lent.is_empty();
        let wanted = pool.ready.len() + usize::from(looks);
        if pool.dismissed {
            return;
        }
        if pool.available() < wanted {
            // On failure, microprocesses that block keep their VPs until they return.
            let _ = self.request_start(pool).inspect_err(|e| self.exhausted(e));
        } else if pool.available() == 0 && self.may_be_called(pool) {
            // On failure, the next thread that enters the pool carries the VP.
            let _ = self.request_start(pool);
        }
    }

    /// Returns whether some VP has no carrier, or may soon have none. Such a VP may be
    /// [`call`](Kernel::call)ed, which starts no kernel thread.
    fn may_be_called(&self, pool: &Pool) -> bool {
        let away = pool.threads - pool.waiting;
        let carrying = away.saturating_sub(self.bound.load(Ordering::Relaxed));
        carrying + pool.ready.len() < self.vps as usize
    }

    /// Dismisses the pool: waiting kernel threads end, and the others end after they have put their
    /// VP down.
    pub fn dismiss(&self) {
        self.lock().dismissed = true;
        self.requested.notify_all();
        // Each ending thread wakes the next one.
        self.wake_one();
    }

    /// Waits, after [`dismiss`](Kernel::dismiss), until at most `rest` kernel threads are left or
    /// `time` is over. Returns the number of threads that are left. Blocks.
    pub fn await_end(&self, rest: impl Fn() -> usize, time: Duration) -> usize {
        let deadline = Instant::now() + time;
        let mut pool = self.lock();
        while pool.threads > rest() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            pool = self.ended.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        pool.threads
    }

    /// Joins the watchdog, the starter, and the kernel threads that have ended or are about to end.
    /// Blocks until they have.
    pub fn join(&self) {
        self.watchdog.join();
        let starter = self.lock().starter.take();
        // A panic of the starter aborts the process.
        let started = starter.and_then(|starter| starter.join().ok()).unwrap_or_default();
        let mut pool = self.lock();
        let all_ended = pool.threads == 0;
        let handles = std::mem::take(&mut pool.handles);
        drop(pool);
        for handle in handles.into_iter().chain(started) {
            // A kernel thread decrements `threads` as its last step, so that it ends within
            // microseconds.
            if all_ended || handle.is_finished() {
                let _ = handle.join();
            }
        }
    }
}
