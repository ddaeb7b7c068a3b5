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
//! itself, and first makes sure that another one waits in its place (`life`).

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::handoff::page::Page;
use crate::handoff::return_queue::Waiter;
use crate::handoff::slot::{NO_PRIORITY, Slot};
use crate::linux::limit::Limit;
use crate::pool::ready_list::Pool;
use crate::pool::record::{Record, Recorder, Step};
use crate::pool::sched::UserScheduler;
use crate::pool::timekeeper::Timekeeper;
use crate::preempt::doorbell::{Doorbells, Means};
use crate::source::{EventSource, Kind};
use crate::watchdog::state::{Alarm, Watchdog};

/// In `called`: it was not.
pub(crate) const NOT_CALLED: i32 = NO_PRIORITY - 1;

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
    pub(crate) scheduler: OnceLock<Weak<dyn UserScheduler>>,
    pub(crate) epoll: OwnedFd,
    /// eventfd in `epoll`: look at the ready list, or at `dismissed`.
    pub(crate) call: OwnedFd,
    pub(crate) vps: u32,
    pub(crate) limit: Limit,
    /// Highest slot ever used.
    pub(crate) high: AtomicU32,
    /// There is a barrier for claims from threads that may be on their cores: see [`barrier`].
    pub(crate) has_barrier: bool,
    /// The source tells of returns, and the handler of its traps is in place.
    pub(crate) wants_returns: AtomicBool,
    pub(crate) reported_no_barrier: AtomicBool,
    pub(crate) concurrency: AtomicUsize,
    /// Kernel threads that wait in the pool and can carry: a copy of the pool's count, readable
    /// without its lock.
    pub(crate) spares: AtomicUsize,
    pub(crate) pool: Mutex<Pool>,
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
    pub(crate) called: Box<[AtomicI32]>,
    pub(crate) doorbells: Doorbells,
    pub(crate) timekeeper: Timekeeper,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) watchdog: Watchdog,
    /// The life of the watchdog's thread, which stands above this room.
    pub(crate) watchdog_thread: fn(&Weak<Kernel>, &Alarm),
}

impl std::fmt::Debug for dyn UserScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserScheduler")
    }
}

impl Kernel {
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

    /// Microprocesses that are bound to a kernel thread without a VP: they will come back.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.bound.load(Ordering::Acquire)
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

    pub(crate) fn wake_one(&self) {
        let one = 1u64;
        // SAFETY: 8 live bytes. EAGAIN at 2^64-1 would mean that it is readable anyway.
        unsafe { libc::write(self.call.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}
