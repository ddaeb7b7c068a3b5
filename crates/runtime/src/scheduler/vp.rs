//! The virtual processor.
//!
//! A VP runs microprocesses one at a time. It has no stack of its own: the switch loop
//! (`switch.rs`) runs on the stacks of the microprocesses, and the idle loop (`idling.rs`) on the
//! stack of the kernel thread.
//!
//! The fields form two halves. The owner's half consists of plain cells that only the holder of the
//! `Carrier` accesses. The shared half consists of atomics that any thread may access.

mod core_claim;
pub(crate) mod measure;
mod quantum;
mod ready;
mod rebalance;

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_arbiter::row::Row;
use kumihimo_arch::{cpu, tls};
use kumihimo_events::Kernel;
use kumihimo_policy::Why;
use kumihimo_queue::{Design, Owner};
use kumihimo_trace::ring::Ring;

use crate::idle::busy_poll::BusyPoll;
use crate::idle::poller::Poller;
use crate::idle::sleep::Idle;
use crate::idle::timer::{BATCH, Timers};
use crate::idle::yield_core::YieldCore;
use crate::kernel_thread::gs_record;
use crate::loom::Unparker;
use crate::memory::pool::VpPool;
use crate::memory::region_cache::RegionCache;
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::prefetch;
use crate::microprocess::protocol::state::Park;
use crate::microprocess::record::Mp;
use crate::priority::common_level::CommonLevel;
use crate::priority::core_claim::CoreClaim;
use crate::priority::lost_time::LostTime;
use crate::priority::priority_order::PublishedLevels;
use crate::priority::priority_requests::PriorityRequests;
use crate::priority::turn_clock::{SLOW_STEPS_EVERY, TurnClock};
use crate::priority::turn_wait::TurnWait;
use crate::process::board::BoardSeats;
use crate::scheduler::vp::measure::Histogram;
use crate::syscall::batch_queue::BatchQueue;

/// Minimum interval between two polls for ready descriptors while microprocesses are runnable, in
/// nanoseconds. Each poll is a system call.
const POLL_EVERY: u64 = 100_000;

/// Number of cache lines of the next microprocess's stack to prefetch: enough for the frames of a
/// wait and of its caller.
const WARM_LINES: usize = 5;

/// Upper bound, in bytes, for the distance between a microprocess's record and its stack pointer
/// before it runs for the first time.
const FRESH: usize = 384;

/// Event counters of a VP. Only the carrier writes them; any thread may read them.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) spawned: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) idle_ns: AtomicU64,
    pub(crate) sleeps: AtomicU64,
}

#[inline(always)]
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

#[repr(C, align(128))]
pub(crate) struct Vp {
    // Owner's half. The fields that every switch accesses come first.
    /// This address space's row on the board, which holds the wake-up cells of its VPs and the
    /// posts for them.
    pub(crate) row: Row,
    pub(super) queue: Owner<Mp>,
    /// Priority level of the running microprocess.
    pub(crate) level: Cell<u8>,
    /// See [`rebalance`].
    pub(super) common_level: CommonLevel,
    pub(super) after_switch: Cell<AfterSwitch>,
    pub(crate) left_by: Cell<*const Mp>,
    pub(super) countdown: Cell<u32>,
    /// Value to which `countdown` was last reset.
    pub(super) look_every: Cell<u32>,
    pub(super) looked_ns: Cell<u64>,
    pub(in crate::scheduler) polled_ns: Cell<u64>,
    /// See [`measure`].
    pub(super) coarse_ns: AtomicU64,
    pub(super) times_next_wake: Cell<bool>,
    pub(super) wake_timed_at: Cell<u64>,
    /// When the running microprocess left for the idle loop; 0: not known.
    pub(super) left_at: Cell<u64>,
    /// The queue may be empty, and the timekeeper was notified of that: see
    /// [`crate::upcall::timekeeper`].
    pub(crate) alone: Cell<bool>,
    /// Whether another VP slept and was worth waking at the last clock check.
    pub(super) may_share: Cell<bool>,
    /// When the VP last woke up, on the instance's clock.
    pub(crate) up_since: Cell<u64>,
    pub(super) keeps_account: bool,
    /// Whether a switch reads the clock: for the policy, or for exact accounting.
    pub(super) books: AtomicBool,
    /// See [`Vp::account_exactly`].
    pub(super) exact_period: AtomicU32,
    pub(super) exact_since: AtomicU64,
    pub(super) exact_running: AtomicPtr<Mp>,
    /// CPU time since then, as far as it was sampled: see [`Vp::sample_turn`].
    pub(super) sampled_turn: AtomicU64,
    /// Kernel thread, time and CPU time of the last reading of the CPU clock.
    pub(super) exact_cpu: Cell<(u32, u64, u64)>,
    pub(super) fsgsbase: bool,
    pub(super) standing_offset: isize,
    /// See [`tls::Tls::lines`].
    pub(super) block_lines: Box<[isize]>,
    /// Whether a yielding microprocess may be queued before its context is saved. This is safe if
    /// no other thread takes from this queue and the run time is not accounted.
    pub(super) queues_early: bool,
    /// Reason for which the running microprocess should give way at the next switch point, if any.
    pub(crate) resched: Cell<Option<Why>>,
    pub(crate) index: usize,
    /// Address of the VP's instance; `instance.rs` casts it to its type.
    pub(super) instance: *const (),
    pub(crate) counters: Counters,
    pub(super) since_ns: Cell<u64>,
    pub(super) lost_time: LostTime,
    /// For policies without accounting: the number of switches at the last clock check, and the
    /// time since which that number has not changed (0: not yet known).
    pub(super) turn: Cell<(u64, u64)>,
    pub(super) timers: UnsafeCell<Timers>,
    pub(crate) pool: VpPool,
    pub(crate) regions: RegionCache,
    pub(crate) poller: Poller,
    pub(crate) busy_poll: BusyPoll,
    pub(crate) yield_core: YieldCore,
    pub(crate) turn_clock: TurnClock,
    pub(crate) turn_wait: TurnWait,
    /// The next microprocess to run, if it waits for its turn on another kernel thread. The VP
    /// moves to that thread from the stack of its current one.
    pub(crate) promised: Cell<Option<&'static Mp>>,
    /// See [`crate::scheduler::parking`].
    pub(super) was_parked: Cell<bool>,
    /// Whether the first VP serves this one's descriptors.
    pub(super) is_set_lent: Cell<bool>,
    /// Whether the VP, which is retired, sleeps with its kernel thread.
    pub(super) stays_retired: Cell<bool>,
    /// Trace ring of this VP, if tracing is on.
    pub(crate) trace: Option<Arc<Ring>>,
    /// System calls that wait to enter the kernel as one batch. Its counters are shared.
    pub(crate) syscall_batch: BatchQueue,
    // Shared half.
    pub(crate) published: PublishedLevels,
    pub(crate) idle: Idle,
    /// See [`crate::scheduler::retirement`].
    pub(super) retired: AtomicBool,
    pub(super) core_claim: CoreClaim,
    pub(crate) priority_requests: PriorityRequests,
    /// Latencies of the timed wake-ups, in nanoseconds. Written by the owner.
    pub(crate) wake_latency: Histogram,
    /// Lengths of the run queue at the samples of the timekeeper, which writes them.
    pub(crate) queue_lengths: Histogram,
}

// SAFETY: the owner's half is accessed only through a `Carrier`, which is not `Send`; the slot
// protocol gives each VP at most one. The rest is atomic.
unsafe impl Sync for Vp {}
// SAFETY: as above.
unsafe impl Send for Vp {}

impl Vp {
    /// Creates a VP that no kernel thread carries yet.
    ///
    /// # Safety
    /// `instance` is the address of the `Instance` that will hold the VP. Nothing reads it before
    /// that instance exists.
    pub(crate) unsafe fn new(
        index: usize,
        instance: *const (),
        seats: &BoardSeats,
        queue: Owner<Mp>,
        design: Design,
        keeps_account: bool,
        kernel: Arc<Kernel>,
    ) -> std::io::Result<Vp> {
        let poller = Poller::new(index)?;
        let idle = Idle::new(seats.row, index, &poller, Unparker::new(kernel, index))?;
        Ok(Vp {
            keeps_account,
            books: AtomicBool::new(keeps_account || measure::is_exact()),
            exact_period: AtomicU32::new(0),
            exact_since: AtomicU64::new(0),
            exact_running: AtomicPtr::default(),
            sampled_turn: AtomicU64::new(0),
            exact_cpu: Cell::new((0, 0, 0)),
            fsgsbase: cpu::fsgsbase(),
            standing_offset: gs_record::standing_offset(),
            block_lines: tls::get().lines().into(),
            queues_early: !design.has_thieves() && !keeps_account,
            index,
            instance,
            level: Cell::new(0),
            common_level: CommonLevel::new(),
            after_switch: Cell::new(AfterSwitch::Nothing),
            left_by: Cell::new(std::ptr::null()),
            countdown: Cell::new(SLOW_STEPS_EVERY),
            look_every: Cell::new(SLOW_STEPS_EVERY),
            looked_ns: Cell::new(0),
            polled_ns: Cell::new(0),
            coarse_ns: AtomicU64::new(0),
            times_next_wake: Cell::new(true),
            wake_timed_at: Cell::new(0),
            left_at: Cell::new(0),
            wake_latency: Histogram::default(),
            queue_lengths: Histogram::default(),
            alone: Cell::new(false),
            may_share: Cell::new(false),
            up_since: Cell::new(0),
            resched: Cell::new(None),
            since_ns: Cell::new(0),
            lost_time: LostTime::default(),
            turn: Cell::new((0, 0)),
            queue,
            timers: UnsafeCell::new(Timers::default()),
            pool: VpPool::new(),
            regions: RegionCache::new(),
            poller,
            busy_poll: BusyPoll::default(),
            yield_core: YieldCore::default(),
            counters: Counters::default(),
            published: PublishedLevels::new(),
            idle,
            retired: AtomicBool::new(false),
            was_parked: Cell::new(false),
            is_set_lent: Cell::new(false),
            stays_retired: Cell::new(false),
            core_claim: CoreClaim::new(seats.seat_of(index)),
            row: seats.row,
            priority_requests: PriorityRequests::default(),
            turn_clock: TurnClock::new(),
            turn_wait: TurnWait::default(),
            promised: Cell::new(None),
            trace: None,
            syscall_batch: BatchQueue::new(),
        })
    }

    /// Returns the VP with calls that wait for their batch for `longest` at most.
    pub(crate) fn with_batch_deadline(mut self, longest: Duration) -> Vp {
        self.syscall_batch.longest_wait = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Returns the VP with `trace` as the ring that records its events.
    pub(crate) fn traced(self, trace: Option<Arc<Ring>>) -> Vp {
        Vp { core_claim: self.core_claim.traced(trace.as_ref()), trace, ..self }
    }

    /// Returns the microprocess that runs here. Owner only.
    #[inline(always)]
    pub(crate) fn running(&self) -> Option<&'static Mp> {
        // SAFETY: the owner runs on the kernel thread that carries this VP: not foreign.
        unsafe { gs_record::running_here() }
    }

    /// Returns the microprocess that is being left, in the middle of a switch.
    pub(crate) fn leaving(&self) -> Option<&'static Mp> {
        // SAFETY: null or a record; records live for ever.
        unsafe { self.left_by.get().as_ref() }
    }

    /// Returns the run queue. Owner only.
    #[inline(always)]
    pub(crate) fn queue(&self) -> Owner<Mp> {
        self.queue
    }

    /// Returns the timers. Owner only. The borrow must end before any call that switches or borrows
    /// them again.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn timers(&self) -> &mut Timers {
        // SAFETY: the owner's half; every borrow in this crate lasts for one call.
        unsafe { &mut *self.timers.get() }
    }

    /// Collects work that other threads sent: on each call what costs one load to detect, and
    /// periodically the rest ([`slow_steps`](Vp::slow_steps)).
    #[inline(always)]
    pub(crate) fn look_around(&self) {
        self.take_posts();
        if !self.queue.injector_is_empty() {
            self.take_injected();
        }
        if let Some(taker) = self.queue.exchange() {
            self.instance().wake_idle(taker);
        }
        let n = self.countdown.get();
        if n == 0 {
            self.slow_steps();
        } else {
            self.countdown.set(n - 1);
        }
    }

    /// Performs the clock check: reads the clock, fires timers, polls descriptors, serves requests
    /// from other threads, and shares surplus.
    #[cold]
    pub(crate) fn slow_steps(&self) {
        let now = self.instance().now();
        self.pace(now);
        self.set_coarse(now);
        self.time_wake_at(now);
        self.may_share.set(self.instance().any_idle() && self.instance().any_worth_waking(now));
        self.serve_priority_requests();
        self.idle.cell.set_last_poll(self.instance().on_clock(now));
        self.take_posts();
        self.ring_at_look(now);
        if !self.queue.injector_is_empty() {
            self.take_injected();
        }
        self.fire_timers(now);
        self.keep_core(now);
        self.run_batch_if_late(now);
        // A computing microprocess passes switch points without a switch. Without this call, work
        // that the previous VP in the ring gave away would wait for a switch.
        if let Some(taker) = self.queue.exchange() {
            self.instance().wake_idle(taker);
        }
        self.check_turn(now);
        if self.poller.is_used() && now.saturating_sub(self.polled_ns.get()) >= POLL_EVERY {
            self.polled_ns.set(now);
            self.poller.poll_ready(self.ready_go_first(now));
        }
        if self.may_share.get() {
            // `Origin::Wake` items normally stay on the VP that woke them. They must not stay for
            // ever while another VP is idle.
            self.queue.loosen();
        }
        if self.running().is_some() {
            // Microprocesses that only yield never pass through `push`. Without this call they
            // would stay on the VP where they began, beside idle VPs.
            if let Some(taker) = self.queue.surplus(self.instance().any_idle()) {
                self.given_away(taker);
            }
            // `idle_ns` lacks the idle period in progress: an idle VP adds it only when that period
            // ends.
            self.syscall_batch.look(now, self.counters.idle_ns.load(Ordering::Relaxed));
        }
        self.rebalance_now();
        if self.instance().has_retired() {
            self.look_beside_retired();
        }
    }

    pub(crate) fn fire_timers(&self, now: u64) {
        self.receive_moved_timers();
        let mut due = [None; BATCH];
        loop {
            let n = self.timers().pop_due(now, &mut due);
            for who in due[..n].iter_mut().filter_map(Option::take) {
                prefetch::prefetch_stack(who.mp);
                self.wake(who);
            }
            if n < BATCH {
                let batch = self.syscall_batch.deadline();
                return self
                    .turn_clock
                    .note_timer(self.timers().next().into_iter().chain(batch).min());
            }
        }
    }

    #[inline]
    pub(crate) fn pick(&self) -> Option<&'static Mp> {
        let picked = self.queue.pop();
        self.warm_up_next();
        // SAFETY: queued items are records.
        picked.map(|(item, _)| unsafe { &*item.as_ptr() })
    }

    /// Prefetches the microprocesses that run next. With many runnable microprocesses, the cache
    /// lines of each have been evicted by the time it runs. While the next one runs, this function
    /// fetches the stack of the one after it, and the record of the one after that. The record
    /// whose stack is fetched was itself prefetched one turn earlier.
    #[inline(always)]
    fn warm_up_next(&self) {
        let Some(item) = self.queue.peek() else { return };
        // SAFETY: queued items are records. This record is in the VP's own queue, so its context is
        // complete.
        let next = unsafe { &*item.as_ptr() };
        // SAFETY: as above.
        let stack = unsafe { *next.context.get() }.stack_pointer();
        prefetch::prefetch(stack);
        for line in 1..WARM_LINES {
            prefetch::prefetch(stack.wrapping_add(line * 64));
        }
        let block = next.fs.get() as *const u8;
        prefetch::prefetch(block.wrapping_offset(self.standing_offset));
        // A microprocess with hardly a frame on its stack has not run yet. It may end soon after it
        // starts, and then accesses its whole thread-local block.
        if std::ptr::from_ref(next).addr().wrapping_sub(stack.addr()) < FRESH && !block.is_null() {
            for line in &self.block_lines {
                prefetch::prefetch(block.wrapping_offset(*line));
            }
        }
        if let Some(after) = next.links.peek_next() {
            prefetch::prefetch(after.as_ptr().cast());
        }
    }

    #[inline]
    pub(super) fn pick_at_least(&self, level: u8) -> Option<&'static Mp> {
        // SAFETY: queued items are records.
        self.queue.pop_at_least(level).map(|(item, _)| unsafe { &*item.as_ptr() })
    }

    /// Takes a microprocess to run, for an idle carrier: first from its own queue, then from other
    /// VPs as far as the queue design allows.
    pub(crate) fn pick_or_pull(&self) -> Option<&'static Mp> {
        self.pick()
            .or_else(|| if self.may_pull() && self.queue.pull() { self.pick() } else { None })
    }

    #[inline]
    pub(crate) fn account_for(&self, next: &Mp) {
        if self.books.load(Ordering::Relaxed) {
            self.book_turn(next);
        }
        let home = self.index as u16;
        if next.home.load(Ordering::Relaxed) != home {
            next.home.store(home, Ordering::Relaxed);
        }
    }

    #[cold]
    fn book_turn(&self, next: &Mp) {
        self.account_exactly(next);
        if self.keeps_account {
            self.book_time();
            let account = next.account.get();
            let left = account.quantum_ns.saturating_sub(account.ran_ns);
            self.turn_clock.quantum.store(left, Ordering::Relaxed);
            self.note_gives_way(account.key, left);
        }
    }

    #[inline]
    pub(super) fn commit_park(&self, mp: &'static Mp) {
        match mp.state.commit_park() {
            Park::Parked => {}
            Park::Permit => self.woken_before(mp),
        }
    }

    /// Reverts the count of an ended microprocess that continues after all.
    pub(crate) fn uncount_end(&self) {
        let ended = &self.counters.ended;
        ended.store(ended.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    /// Records what `mp` waits for. `(kind, object)` is an encoded [`park::Wait`].
    #[inline(always)]
    pub(crate) fn note_wait(&self, mp: &Mp, (kind, object): (u8, usize)) {
        mp.wait_kind.store(kind, Ordering::Relaxed);
        mp.wait_object.store(object, Ordering::Relaxed);
    }
}
