//! The kernel's half: a pool of kernel threads, and which of them carries which virtual processor.
//!
//! ```text
//!   source: this kernel thread sleeps            blocking(): I am going to
//!            \                                        /
//!             told, in epoll_wait of a pooled kernel thread (a spare)
//!             claim the VP from the slot; user scheduler: Blocked -> priority
//!             ready list, highest priority first
//!             the spare carries it: Resumed ... until the VP is gone from its slot
//!             back to the pool, or, if that holds enough, the end
//! ```
//! There is no kernel thread between the cause and the successor: the woken thread takes the VP
//! itself, and first makes sure that another one waits in its place (`pool.rs`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::handoff::page::Page;
use crate::handoff::return_queue::Waiter;
use crate::handoff::slot::{Claim, NO_PRIORITY, Slot};
use crate::handoff::thread_state::{AWAY, Event};
use crate::linux::epoll::watch_for;
use crate::linux::limit::Limit;
use crate::pool::life::Pool;
use crate::pool::record::{Record, Recorder, Step};
use crate::pool::sched::{Answer, UserScheduler};
use crate::pool::timekeeper::Timekeeper;
use crate::preempt::doorbell::{Doorbells, Means};
use crate::report::fatal::fatal;
use crate::source::{self, EventSource, Kind};
use crate::watchdog::scan::Watchdog;
use crate::{handoff::barrier, handoff::slot, pool::trap};

/// In epoll data: not a source's.
const CALL: u64 = 1 << 32;
/// In epoll data, with a VP's number: see [`Kernel::watch_once`].
pub(crate) const READY: u64 = 1 << 33;
/// In `called`: it was not.
const NOT_CALLED: i32 = NO_PRIORITY - 1;

/// What [`Kernel::open`] is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Virtual processors.
    pub vps: u32,
    /// Unbound kernel threads that the pool keeps (P0: `set_concurrency`).
    pub concurrency: usize,
    /// The most kernel threads, carriers included. At least one for each VP is always allowed.
    pub limit: Limit,
    /// The source to use; none: the best one that the machine allows.
    pub source: Option<Kind>,
    /// How kernel threads are interrupted; none: the best way that the machine allows.
    pub preempt: Option<Means>,
    /// Whether [`Kernel::record`] records anything.
    pub record: bool,
}

/// The kernel's half of one scheduler.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) page: Page,
    pub(crate) source: Box<dyn EventSource>,
    scheduler: OnceLock<Weak<dyn UserScheduler>>,
    pub(crate) epoll: OwnedFd,
    /// eventfd in `epoll`: look at the ready list, or at `dismissed`.
    pub(crate) call: OwnedFd,
    pub(crate) vps: u32,
    pub(crate) limit: Limit,
    /// Highest slot ever used.
    pub(crate) high: AtomicU32,
    /// There is a barrier for claims from threads that may be on their cores: see [`barrier`].
    has_barrier: bool,
    /// The source tells of returns, and the handler of its traps is in place.
    wants_returns: AtomicBool,
    reported_no_barrier: AtomicBool,
    pub(crate) concurrency: AtomicUsize,
    /// Kernel threads that wait in the pool and can carry: a copy of the pool's count, readable
    /// without its lock.
    pub(crate) spares: AtomicUsize,
    pool: Mutex<Pool>,
    pub(crate) ended: Condvar,
    /// Slot of the thread that polls on behalf of a source that does not report by itself; 0: none.
    pub(crate) poller: AtomicU32,
    /// Slot of the kernel thread that carries each VP; 0: none.
    pub(crate) carriers: Box<[AtomicU32]>,
    /// Slot of the kernel thread that each VP was handed to, until it carries it; 0: none.
    pub(crate) handed: Box<[AtomicU32]>,
    pub(crate) bound: AtomicUsize,
    /// The return queue: by slot, the wait of its kernel thread for a VP.
    pub(crate) waiters: Box<[Waiter]>,
    /// The number of kernel threads that wait in the return queue.
    pub(crate) waiter_count: AtomicUsize,
    pub(crate) hand_offs: AtomicU64,
    /// Times that a waiter of the return queue woke only to poll whether its VP can come.
    pub(crate) looks: AtomicU64,
    pub(crate) exhausted: AtomicU64,
    /// The last attempt to start a kernel thread failed.
    pub(crate) is_short: AtomicBool,
    /// Priority with which each VP was [`call`](Kernel::call)ed.
    called: Box<[AtomicI32]>,
    pub(crate) doorbells: Doorbells,
    pub(crate) timekeeper: Timekeeper,
    recorder: Option<Recorder>,
    pub(crate) watchdog: Watchdog,
}

impl std::fmt::Debug for dyn UserScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserScheduler")
    }
}

/// Counters of a [`Kernel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernel threads.
    pub threads: usize,
    /// Of these, those that wait in the pool.
    pub waiting: usize,
    /// Microprocesses that are bound to a kernel thread without a VP.
    pub bound: usize,
    /// VPs that went on under another kernel thread.
    pub hand_offs: u64,
    /// Times that a kernel thread that waits for a VP woke only to poll whether the VP can come.
    pub looks: u64,
    /// Times that a kernel thread was wanted and not to be had.
    pub exhausted: u64,
    /// Sleeps told by the source.
    pub blocked: u64,
    /// Returns told by the source.
    pub unblocked: u64,
    /// Sleeps that the source could not tell.
    pub missed: u64,
    /// Kernel threads asked to be interrupted, and those that could not be.
    pub rung: u64,
    /// See `rung`.
    pub not_rung: u64,
    /// Times that the user scheduler was found not to do its part, and those that were overridden:
    /// see [`crate::watchdog`].
    pub misbehaved: u64,
    /// See `misbehaved`.
    pub overridden: u64,
}

impl Kernel {
    /// Opens an event source and the shared page. No kernel thread is started yet: see
    /// [`init_sched`](Kernel::init_sched) and [`resume`](Kernel::resume).
    ///
    /// # Errors
    /// `Unsupported`: the source asked for is refused, with the reason. Else what the kernel says:
    /// no memory, no descriptors.
    pub fn open(settings: Settings) -> io::Result<Arc<Kernel>> {
        let mut limit = settings.limit;
        limit.threads = limit.threads.max(settings.vps as usize);
        let slots = u32::try_from(limit.threads).unwrap_or(u32::MAX - 1);
        let source = source::open(settings.source, slots).map_err(|refused| {
            let kind = settings.source.map_or("", Kind::name);
            io::Error::new(
                io::ErrorKind::Unsupported,
                format!("event source {kind} (KUMI_EVENTS): {refused}"),
            )
        })?;
        let page = match source.memory() {
            // SAFETY: the source keeps it mapped, and lives as long as the page (fields of one
            // struct, which drops `page` first).
            Some((base, bytes)) => unsafe { Page::of(base, bytes)? },
            None => Page::new(slots)?,
        };
        // SAFETY: integers only; fresh descriptors.
        let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))? };
        // SAFETY: as above.
        let call = unsafe { owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))? };
        watch_for(epoll.as_fd(), call.as_fd(), CALL)?;
        source.register(epoll.as_fd())?;
        if source.reports_returns(0) {
            trap::install()?;
        }
        let doorbells = Doorbells::open(settings.preempt, source.kind(), page.slots())?;
        Ok(Arc::new(Kernel {
            doorbells,
            timekeeper: Timekeeper::default(),
            wants_returns: AtomicBool::new(source.reports_returns(0)),
            source,
            scheduler: OnceLock::new(),
            epoll,
            call,
            vps: settings.vps,
            limit,
            high: AtomicU32::new(0),
            has_barrier: barrier::probe().is_ok(),
            reported_no_barrier: AtomicBool::new(false),
            concurrency: AtomicUsize::new(settings.concurrency),
            spares: AtomicUsize::new(0),
            pool: Mutex::new(Pool::new(page.slots())),
            watchdog: Watchdog::new(settings.vps, page.slots()),
            waiters: (0..=page.slots()).map(|_| Waiter::new()).collect(),
            page,
            ended: Condvar::new(),
            poller: AtomicU32::new(0),
            carriers: (0..settings.vps).map(|_| AtomicU32::new(0)).collect(),
            handed: (0..settings.vps).map(|_| AtomicU32::new(0)).collect(),
            bound: AtomicUsize::new(0),
            waiter_count: AtomicUsize::new(0),
            hand_offs: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            called: (0..settings.vps).map(|_| AtomicI32::new(NOT_CALLED)).collect(),
            recorder: settings.record.then(Recorder::new),
        }))
    }

    /// P0's `init_sched`: makes the user scheduler known. Once.
    ///
    /// # Panics
    /// If there is one.
    pub fn init_sched(&self, scheduler: Weak<dyn UserScheduler>) {
        assert!(self.scheduler.set(scheduler).is_ok(), "this kernel's half has a user scheduler");
    }

    pub(crate) fn user(&self) -> Option<Arc<dyn UserScheduler>> {
        self.scheduler.get()?.upgrade()
    }
}

/// # Safety
/// `fd` is fresh, or negative with errno set.
unsafe fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        let e = io::Error::last_os_error();
        let text = format!("pool of kernel threads: {e}; raise the descriptor limit (ulimit -n)");
        return Err(io::Error::new(e.kind(), text));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Kernel {
    /// Whether a kernel thread waits in the pool, or is beginning. If not, none is to be had. Out
    /// of date at once. Async-signal-safe.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.spares.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which source tells the events.
    #[must_use]
    pub fn source(&self) -> Kind {
        self.source.kind()
    }

    /// Slot `index` of the shared page.
    #[must_use]
    pub fn slot(&self, index: u32) -> &Slot {
        self.page.slot(index)
    }

    /// The slots that have been in use: those with a [`tid`](Slot::tid) still are.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        (1..=self.high.load(Ordering::Relaxed)).map(|index| self.page.slot(index))
    }

    /// The slot of kernel thread `tid`, if it is in the pool; out of date at once.
    pub(crate) fn index_of(&self, tid: i32) -> Option<(u32, &Slot)> {
        let of = |index| (index, self.page.slot(index));
        (1..=self.high.load(Ordering::Relaxed))
            .map(of)
            .find(|(_, slot)| tid != 0 && slot.tid.load(Ordering::Relaxed) as i32 == tid)
    }

    /// The slot of the kernel thread that carries `vp`; out of date at once.
    #[must_use]
    pub fn carrier(&self, vp: u32) -> Option<&Slot> {
        let index = self.carriers[vp as usize].load(Ordering::Relaxed);
        (index != 0).then(|| self.page.slot(index))
    }

    /// A snapshot.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let pool = self.lock();
        let mut counts = Counts {
            threads: pool.threads,
            waiting: pool.waiting,
            bound: self.bound.load(Ordering::Acquire),
            hand_offs: self.hand_offs.load(Ordering::Relaxed),
            looks: self.looks.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
            rung: self.doorbells.rung.load(Ordering::Relaxed),
            not_rung: self.doorbells.failed.load(Ordering::Relaxed),
            misbehaved: self.watchdog.violations.iter().map(|n| n.load(Ordering::Relaxed)).sum(),
            overridden: self.watchdog.overridden.load(Ordering::Acquire),
            ..Counts::default()
        };
        drop(pool);
        for slot in self.slots() {
            counts.blocked = counts.blocked.wrapping_add(slot.blocked.load(Ordering::Relaxed));
            counts.unblocked =
                counts.unblocked.wrapping_add(slot.unblocked.load(Ordering::Relaxed));
            counts.missed = counts.missed.wrapping_add(slot.missed.load(Ordering::Relaxed));
        }
        counts
    }

    /// Microprocesses that are bound to a kernel thread without a VP: they will come back.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.bound.load(Ordering::Acquire)
    }

    /// P0's `set_concurrency`: how many unbound kernel threads the pool keeps from now on. Those
    /// too many end.
    pub fn set_concurrency(&self, n: usize) {
        self.concurrency.store(n, Ordering::Relaxed);
        // It lingers, ends, and wakes the next one if there are still too many.
        self.wake_one();
    }

    /// Has `vp`, which nobody carries, carried by a kernel thread of the pool, or a new one.
    ///
    /// # Errors
    /// `WouldBlock`: the limit of kernel threads is reached; else what the kernel says. The VP is
    /// then nobody's, as before.
    pub fn resume(self: &Arc<Kernel>, vp: u32, priority: Option<u8>) -> io::Result<()> {
        let mut pool = self.lock();
        if pool.available() <= pool.ready.len() {
            self.start(&mut pool)?;
        }
        pool.push(slot::token(vp), priority);
        drop(pool);
        self.start_watchdog();
        self.wake_one();
        Ok(())
    }

    /// As [`resume`](Kernel::resume), but async-signal-safe: it starts no kernel thread. The next
    /// one that is in the pool, or comes there, takes `vp`. A thread that puts a VP down comes to
    /// the pool, and one stays there as long as the source reports anything, or
    /// [`set_concurrency`](Kernel::set_concurrency) requires it; the last one to leave the pool for
    /// a VP, while another VP has no carrier, starts a successor. So there is a next one, unless no
    /// kernel thread is to be had.
    pub fn call(&self, vp: u32, priority: Option<u8>) {
        self.leave_called(vp, priority);
        self.wake_one();
    }

    /// As [`call`](Kernel::call), without a wake-up: the caller itself goes to the pool.
    pub(crate) fn leave_called(&self, vp: u32, priority: Option<u8>) {
        // Release: with the swap in `take_called`.
        self.called[vp as usize].store(priority.map_or(NO_PRIORITY, i32::from), Ordering::Release);
    }

    /// What was [`call`](Kernel::call)ed is ready.
    pub(crate) fn take_called(&self, pool: &mut Pool) {
        for (vp, called) in (0u32..).zip(&self.called) {
            if called.load(Ordering::Relaxed) != NOT_CALLED {
                let priority = called.swap(NOT_CALLED, Ordering::Acquire);
                pool.push(slot::token(vp), u8::try_from(priority).ok());
            }
        }
    }

    /// Sees to it that somebody can take the VP of a kernel thread that is about to be away. False:
    /// no kernel thread is to be had.
    #[must_use]
    pub fn prepare(self: &Arc<Kernel>) -> bool {
        let mut pool = self.lock();
        if pool.dismissed {
            return false;
        }
        if !self.has_barrier {
            self.report_no_barrier();
            return false;
        }
        pool.available() > pool.ready.len()
            || self.start(&mut pool).inspect_err(|e| self.exhausted(e)).is_ok()
    }

    /// Reports once that no hand-off is safe here.
    #[cold]
    fn report_no_barrier(&self) {
        if !self.reported_no_barrier.swap(true, Ordering::Relaxed)
            && let Err(refused) = barrier::probe()
        {
            eprintln!(
                "kumihimo: `blocking` holds its virtual processor up here, since no hand-off is safe: {refused}"
            );
        }
    }

    /// Raises `event` for the carrier of `vp`: delivered when its slot is unmasked, or, where it
    /// runs in user mode without looking, by an interruption ([`crate::preempt`]). Takes a lock: by
    /// callers that are masked, or no microprocesses, or in a handler outside of the runtime.
    pub fn raise(&self, vp: u32, event: Event) {
        // Pairs with the fence in `KernelThread::install_vp`: the thread that takes the VP now sees
        // what the caller queued before, or its slot is seen here.
        fence(Ordering::SeqCst);
        let index = self.carriers[vp as usize].load(Ordering::Relaxed);
        if index == 0 {
            return;
        }
        let slot = self.page.slot(index);
        if event == Event::Preempted {
            self.watchdog.raised(vp);
        }
        // A thread that finds the bit set relies on the setter to have rung, and on the timekeeper
        // to ring again.
        if slot.pending.fetch_or(event.bit(), Ordering::SeqCst) & event.bit() == 0 {
            self.doorbells.ring(index, slot);
        }
    }

    /// Whether something is raised for the carrier of `vp` and not yet delivered.
    #[must_use]
    pub fn is_raised(&self, vp: u32) -> bool {
        self.carrier(vp).is_some_and(Slot::has_pending)
    }

    /// Ends the waits for `vp` on the kernel threads of returned microprocesses, which go on
    /// without a VP: `vp` is stalled. Async-signal-safe.
    pub fn release_waiters(&self, vp: u32) {
        let high = self.high.load(Ordering::Relaxed) as usize;
        self.waiters.iter().take(high + 1).for_each(|waiter| waiter.release(vp));
    }

    /// Interrupts the microprocess on the kernel thread of slot `index`, if it has no VP: the user
    /// scheduler is asked as after [`raise`](Kernel::raise). Harmless to another one that has the
    /// slot by now. Takes a lock, as that does.
    pub fn call_back(&self, index: u32) {
        let slot = self.page.slot(index);
        slot.pending.fetch_or(Event::Preempted.bit(), Ordering::SeqCst);
        self.doorbells.ring(index, slot);
    }

    /// Rings the doorbell of the carrier of `vp` once more for a raised event, unless it is masked.
    pub fn ring_again(&self, vp: u32) {
        let index = self.carriers[vp as usize].load(Ordering::Relaxed);
        if index != 0 && !self.page.slot(index).is_masked() {
            self.doorbells.ring(index, self.page.slot(index));
        }
    }

    /// The source that serves kernel threads to which the kernel refuses
    /// [`source`](Kernel::source), once one was refused.
    #[must_use]
    pub fn fallback(&self) -> Option<Kind> {
        self.source.fallback()
    }

    /// The limit on kernel threads and its source.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// How kernel threads are interrupted.
    #[must_use]
    pub fn preemption(&self) -> Means {
        self.doorbells.means()
    }

    /// Tells [`UserScheduler::ready`] once when `fd` becomes readable from now on.
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

    /// A bound microprocess has a VP again.
    pub fn unbind(&self) {
        self.bound.fetch_sub(1, Ordering::Release);
    }

    /// Notes that the kernel thread of slot `index` carries `vp` no longer. False: it did not.
    pub(crate) fn clear_carrier(&self, vp: u32, index: u32) -> bool {
        // Relaxed: the slot's `vp` orders it, or the pool's lock.
        self.carriers[vp as usize]
            .compare_exchange(index, 0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// *Blocked*, told by the source: the kernel thread of slot `index` may sleep, or may have
    /// slept.
    pub(crate) fn blocked(&self, index: u32) {
        // What the kernel has lent is accepted or not. A carrier that is back by now keeps its VP:
        // none is taken from one that runs.
        self.take_over(index, if self.source.lends(index) { Slot::accept } else { Slot::claim });
    }

    /// Claims the VP of slot `index`, and asks the user scheduler what comes next.
    fn take_over(&self, index: u32, claim: fn(&Slot) -> Claim) {
        let Some(scheduler) = self.user() else { return };
        let slot = self.page.slot(index);
        let time = slot.times.load(Ordering::Acquire);
        let state = slot.state.load(Ordering::Relaxed);
        // Before the claim: the carrier, if it loses its VP, takes itself off the count.
        self.bound.fetch_add(1, Ordering::Relaxed);
        let Claim::Taken(token) = claim(slot) else {
            self.bound.fetch_sub(1, Ordering::Release);
            return;
        };
        // Against a VP that there is not, or that is not here: nobody would have it, or two.
        let vp = slot::vp_of(token, self.vps).filter(|vp| self.clear_carrier(*vp, index));
        let Some(vp) = vp else {
            fatal(format_args!(
                "slot {index} gave up {token:#x}, which its kernel thread does not carry"
            ));
        };
        // Unless it is back by now, and has noted that.
        let _ = slot.state.compare_exchange(state, AWAY, Ordering::Relaxed, Ordering::Relaxed);
        self.source.end(index, time);
        self.check_trap_handler();
        self.hand_offs.fetch_add(1, Ordering::Relaxed);
        self.record(Step::Sleeps, index, None);
        self.record(Step::Blocked, index, None);
        self.watchdog.begin_blocked(vp);
        let answer = scheduler.blocked(vp);
        if self.watchdog.finish_blocked(vp) {
            self.lock().stuck -= 1;
        }
        if let Answer::Next(priority) = answer {
            self.lock().push(token, priority);
        }
    }

    /// Notes, if [`Settings::record`] asked for it, that `step` is taken, about the kernel thread
    /// of slot `thread` (0: none). Async-signal-safe.
    #[inline]
    pub fn record(&self, step: Step, thread: u32, priority: Option<u8>) {
        if let Some(recorder) = &self.recorder {
            let state =
                if thread == 0 { 0 } else { self.page.slot(thread).state.load(Ordering::Relaxed) };
            recorder.add(step, thread, state, priority.map_or(NO_PRIORITY, i32::from));
        }
    }

    /// What was recorded so far, 4,096 steps at most. Empty unless [`Settings::record`] asked for
    /// it.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.recorder.as_ref().map_or_else(Vec::new, Recorder::all)
    }

    /// Whether returns are to be told by a trap.
    pub(crate) fn wants_returns(&self) -> bool {
        self.wants_returns.load(Ordering::Relaxed)
    }

    /// Requests no more traps once the application has replaced our handler. It still gets those on
    /// their way.
    fn check_trap_handler(&self) {
        trap::update_signal_masks();
        if !self.wants_returns()
            || trap::is_installed()
            || !self.wants_returns.swap(false, Ordering::Relaxed)
        {
            return;
        }
        for slot in self.slots() {
            slot.wanted.fetch_and(!slot::WANT_UNBLOCKED, Ordering::Relaxed);
        }
        eprintln!(
            "kumihimo: the handler of SIGTRAP was replaced after the runtime started: a microprocess that comes back from a block waits for its \
             virtual processor only when it next enters the runtime; install such a handler before, and it gets its own SIGTRAPs"
        );
    }

    /// *Blocked*, said by the kernel threads themselves.
    pub(crate) fn take_lent(&self) {
        let overruled = std::mem::take(&mut self.lock().overruled);
        for index in overruled {
            // Masked, or left over by a thread that gets no answer: the watchdog comes again. As
            // with a sleeping one, the microprocess finds out when it next enters the user
            // scheduler.
            self.take_over(index, Slot::claim);
        }
        // One at a time: if the user scheduler does not answer, others find the rest.
        let n = self.lock().lent.len();
        for _ in 0..n {
            let Some(index) = self.lock().next_lent() else { return };
            let slot = self.page.slot(index);
            if slot.state.load(Ordering::Acquire) != AWAY {
                // It is back already and keeps its VP, wherever that is by now.
            } else if slot.is_masked() {
                // Not yet away: it wakes somebody when it is.
                self.lock().lent.push(index);
            } else {
                self.take_over(index, Slot::claim);
            }
        }
    }

    pub(crate) fn wake_one(&self) {
        let one = 1u64;
        // SAFETY: 8 live bytes. EAGAIN at 2^64-1 would mean that it is readable anyway.
        unsafe { libc::write(self.call.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}
