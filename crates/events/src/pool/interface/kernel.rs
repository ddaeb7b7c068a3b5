//! Kernel: the kernel's half of one scheduler, with its pool of kernel threads and the VPs that
//! they carry.
//!
//! ```text
//!   source: this kernel thread sleeps            blocking(): this kernel thread will block
//!            \                                        /
//!             a spare (a kernel thread of the pool) wakes in epoll_wait
//!             it claims the VP from the slot; user scheduler: Blocked -> priority
//!             ready list, highest priority first
//!             a spare carries the VP: Resumed ... until the slot has no VP
//!             back to the pool, or the end if the pool has enough threads
//! ```
//! No further kernel thread stands between the cause and the successor: the woken spare takes the
//! VP itself. Before that it ensures that another spare waits in its place (`life`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use kumihimo_arch::descriptor::Descriptor;

use crate::handoff::carriers::Carriers;
use crate::handoff::page::Page;
use crate::handoff::park_word::ParkWord;
use crate::handoff::return_queue::Waiter;
use crate::handoff::slot::{NO_PRIORITY, Slot};
use crate::linux::limit::Limit;
use crate::linux::wakeup::EpollWaker;
use crate::pool::pending_starts::PendingStarts;
use crate::pool::ready_list::Pool;
use crate::pool::record::{Record, Recorder, Step};
use crate::pool::sched::UserScheduler;
use crate::pool::timekeeper::Timekeeper;
use crate::preempt::doorbell::{Doorbells, Means};
use crate::source::{EventSource, Kind};
use crate::watchdog::state::{Alarm, Watchdog};

/// The parameters of [`Kernel::open`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of virtual processors.
    pub vps: u32,
    /// The number of those that begin [parked](crate::KernelThread::park_vp): the last ones. They
    /// have no kernel thread.
    pub parked: u32,
    /// The number of unbound kernel threads that the pool keeps (P0: `set_concurrency`).
    pub concurrency: usize,
    /// The maximum number of kernel threads, carriers included. At least one is always allowed for
    /// each VP that does not begin parked.
    pub limit: Limit,
    /// The source to use, or `None` for the best one that the machine allows.
    pub source: Option<Kind>,
    /// The means of interrupting kernel threads, or `None` for the best one that the machine
    /// allows.
    pub preempt: Option<Means>,
    /// Whether [`Kernel::record`] records the steps of the protocol.
    pub record: bool,
}

/// The kernel's half of one scheduler.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) page: Page,
    pub(crate) source: Box<dyn EventSource>,
    pub(crate) scheduler: OnceLock<Weak<dyn UserScheduler>>,
    pub(crate) epoll: Descriptor,
    /// Wakes a thread in `epoll` to check the ready list and `dismissed`.
    pub(crate) call: EpollWaker,
    pub(crate) vps: u32,
    pub(crate) limit: Limit,
    /// The signal mask of the thread that opened it.
    pub(crate) signal_mask: u64,
    /// The highest slot ever used.
    pub(crate) high: AtomicU32,
    /// Whether a barrier is available for claims from threads that may be on their cores: see
    /// [`barrier`](crate::barrier).
    pub(crate) has_barrier: bool,
    /// Whether the source reports returns and the handler of its traps is installed.
    pub(crate) wants_returns: AtomicBool,
    pub(crate) reported_no_barrier: AtomicBool,
    pub(crate) concurrency: AtomicUsize,
    /// Kernel threads that wait in the pool and can carry: a copy of the pool's count, readable
    /// without its lock.
    pub(crate) spares: AtomicUsize,
    pub(crate) pool: Mutex<Pool>,
    pub(crate) ended: Condvar,
    /// Notified when a start is requested from the starter, and when the pool is dismissed.
    pub(crate) requested: Condvar,
    pub(crate) pending_starts: PendingStarts,
    /// The slot of the thread that polls for a source that does not report by itself; 0: none.
    pub(crate) poller: AtomicU32,
    pub(crate) carriers: Carriers,
    /// By VP: whether it is parked.
    pub(crate) park_words: Box<[ParkWord]>,
    pub(crate) bound: AtomicUsize,
    /// The return queue: by slot, the wait of its kernel thread for a VP.
    pub(crate) waiters: Box<[Waiter]>,
    /// The number of kernel threads that wait in the return queue.
    pub(crate) waiter_count: AtomicUsize,
    pub(crate) hand_offs: AtomicU64,
    /// Times that a waiter of the return queue woke only to poll whether its VP can come.
    pub(crate) looks: AtomicU64,
    pub(crate) exhausted: AtomicU64,
    /// Whether the last attempt to start a kernel thread failed.
    pub(crate) is_short: AtomicBool,
    pub(crate) doorbells: Doorbells,
    pub(crate) timekeeper: Timekeeper,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) watchdog: Watchdog,
    /// The main function of the watchdog's thread. It belongs to a higher room, which registers it
    /// here.
    pub(crate) watchdog_thread: fn(&Weak<Kernel>, &Alarm),
}

impl std::fmt::Debug for dyn UserScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserScheduler")
    }
}

impl Kernel {
    /// Registers the user scheduler (P0: `init_sched`).
    ///
    /// # Panics
    /// If a user scheduler is registered already.
    pub fn init_sched(&self, scheduler: Weak<dyn UserScheduler>) {
        assert!(
            self.scheduler.set(scheduler).is_ok(),
            "init_sched: a user scheduler is registered already"
        );
    }

    pub(crate) fn user(&self) -> Option<Arc<dyn UserScheduler>> {
        self.scheduler.get()?.upgrade()
    }
}

impl Kernel {
    /// Returns whether a kernel thread waits in the pool or is starting without delay. The result
    /// may be out of date. Async-signal-safe.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.spares.load(Ordering::Relaxed) > self.pending_starts.delayed()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kind of the event source.
    #[must_use]
    pub fn source(&self) -> Kind {
        self.source.kind()
    }

    /// Returns slot `index` of the shared page.
    #[must_use]
    pub fn slot(&self, index: u32) -> &Slot {
        self.page.slot(index)
    }

    /// Returns the slots that have ever been in use. A slot with a [`tid`](Slot::tid) still is.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        (1..=self.high.load(Ordering::Relaxed)).map(|index| self.page.slot(index))
    }

    /// Returns the slot of kernel thread `tid`, if it is in the pool. The result may be out of
    /// date.
    pub(crate) fn index_of(&self, tid: i32) -> Option<(u32, &Slot)> {
        let of = |index| (index, self.page.slot(index));
        (1..=self.high.load(Ordering::Relaxed))
            .map(of)
            .find(|(_, slot)| tid != 0 && slot.tid.load(Ordering::Relaxed) as i32 == tid)
    }

    /// Returns the slot of the kernel thread that carries `vp`. The result may be out of date.
    #[must_use]
    pub fn carrier(&self, vp: u32) -> Option<&Slot> {
        let index = self.carriers.of(vp);
        (index != 0).then(|| self.page.slot(index))
    }

    /// Returns the number of microprocesses that are bound to a kernel thread without a VP. Each of
    /// them will need a VP again.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.bound.load(Ordering::Acquire)
    }

    /// Returns the source for kernel threads to which the kernel refuses
    /// [`source`](Kernel::source), once a thread was refused.
    #[must_use]
    pub fn fallback(&self) -> Option<Kind> {
        self.source.fallback()
    }

    /// Returns the limit on kernel threads and the source of that limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the means by which kernel threads are interrupted.
    #[must_use]
    pub fn preemption(&self) -> Means {
        self.doorbells.means()
    }

    /// Notes that a bound microprocess has a VP again.
    pub fn unbind(&self) {
        self.bound.fetch_sub(1, Ordering::Release);
    }

    /// Records `step` about the kernel thread of slot `thread` (0: none), if [`Settings::record`]
    /// is set. Async-signal-safe.
    #[inline]
    pub fn record(&self, step: Step, thread: u32, priority: Option<u8>) {
        if let Some(recorder) = &self.recorder {
            let state =
                if thread == 0 { 0 } else { self.page.slot(thread).state.load(Ordering::Relaxed) };
            recorder.add(step, thread, state, priority.map_or(NO_PRIORITY, i32::from));
        }
    }

    /// Returns the recorded steps, 4,096 at most. Empty unless [`Settings::record`] is set.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.recorder.as_ref().map_or_else(Vec::new, Recorder::all)
    }

    pub(crate) fn wake_one(&self) {
        self.call.wake();
    }
}
