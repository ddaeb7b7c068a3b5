//! The virtual processor.
//!
//! A VP runs microprocesses one at a time. It has no stack of its own: `switch.rs` has the loop,
//! which runs on the stacks of the microprocesses, and `idling.rs` what it does without work.
//!
//! Owner's half: plain cells, touched by the holder of the `Carrier`. Shared half: atomics, touched
//! by any thread.

mod core_claim;
mod quantum;
mod ready;
mod rebalance;

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_arbiter::row::Row;
use kumihimo_arch::{cpu, tls};
use kumihimo_policy::Why;
use kumihimo_queue::{Design, Owner};
use kumihimo_trace::ring::Ring;

use crate::idle::busy_poll::BusyPoll;
use crate::idle::poller::Poller;
use crate::idle::sleep::Idle;
use crate::idle::timer::{BATCH, Timers};
use crate::idle::yield_core::YieldCore;
use crate::kernel_thread::gs_record;
use crate::memory::pool::VpPool;
use crate::memory::region_cache::RegionCache;
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::prefetch;
use crate::microprocess::record::Mp;
use crate::microprocess::state::Park;
use crate::priority::common_level::CommonLevel;
use crate::priority::core_claim::CoreClaim;
use crate::priority::priority_order::PublishedLevels;
use crate::priority::priority_requests::PriorityRequests;
use crate::priority::turn_clock::{SLOW_STEPS_EVERY, TurnClock};
use crate::priority::turn_wait::TurnWait;
use crate::process::board::BoardSeats;
use crate::syscall::batch_queue::BatchQueue;

/// Nanoseconds between two system calls that ask for ready descriptors while there is something to
/// run.
const POLL_EVERY: u64 = 100_000;

/// How much of the next one's stack is fetched ahead: the frames of a wait and of its caller.
const WARM_LINES: usize = 5;

/// How far below its record the stack pointer of one is, at most, that has not run yet.
const FRESH: usize = 384;

/// Counters with one writer, the carrier; anyone may read.
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
    // Owner's half. First what every switch touches.
    /// Where others call its VPs, and post what came for them.
    pub(crate) row: Row,
    pub(super) queue: Owner<Mp>,
    /// Level of the running one.
    pub(crate) level: Cell<u8>,
    /// See [`rebalance`].
    pub(super) common_level: CommonLevel,
    pub(super) after_switch: Cell<AfterSwitch>,
    pub(crate) left_by: Cell<*const Mp>,
    pub(super) countdown: Cell<u32>,
    /// What the countdown begins with.
    pub(super) look_every: Cell<u32>,
    pub(super) looked_ns: Cell<u64>,
    pub(super) polled_ns: Cell<u64>,
    /// Nothing may be queued, and the timekeeper was notified of that: see
    /// [`crate::upcall::timekeeper`].
    pub(crate) alone: Cell<bool>,
    /// As of the last look: another VP sleeps and is rested.
    pub(super) may_share: Cell<bool>,
    /// When it last woke up.
    pub(crate) up_since: Cell<u64>,
    pub(super) keeps_account: bool,
    pub(super) fsgsbase: bool,
    pub(super) standing_offset: isize,
    /// See [`tls::Tls::lines`].
    pub(super) block_lines: Box<[isize]>,
    /// A yielding microprocess may be queued before its context is left: no other thread takes from
    /// this queue, and its run time is not needed.
    pub(super) queues_early: bool,
    /// Why the running one should give way at the next switch point, if it should.
    pub(crate) resched: Cell<Option<Why>>,
    pub(crate) index: usize,
    /// Its instance: an address here; `instance.rs` gives it the type.
    pub(super) instance: *const (),
    pub(crate) counters: Counters,
    pub(super) since_ns: Cell<u64>,
    /// Where nobody is timed at a switch: the number of switches at the last look, and since when
    /// it is the same (0: not yet known).
    pub(super) turn: Cell<(u64, u64)>,
    pub(super) timers: UnsafeCell<Timers>,
    pub(crate) pool: VpPool,
    pub(crate) regions: RegionCache,
    pub(crate) poller: Poller,
    pub(crate) busy_poll: BusyPoll,
    pub(crate) yield_core: YieldCore,
    pub(crate) turn_clock: TurnClock,
    pub(crate) turn_wait: TurnWait,
    /// The next one, which waits for its turn on another kernel thread: the VP goes there from this
    /// one's own stack.
    pub(crate) promised: Cell<Option<&'static Mp>>,
    /// Where what happens here is noted, if it is.
    pub(crate) trace: Option<Arc<Ring>>,
    /// System calls that wait to enter the kernel together. Its counters are shared.
    pub(crate) syscall_batch: BatchQueue,
    // Shared half.
    pub(crate) published: PublishedLevels,
    pub(crate) idle: Idle,
    pub(super) core_claim: CoreClaim,
    pub(crate) priority_requests: PriorityRequests,
}

// SAFETY: the owner's half is reached through a `Carrier` (not `Send`, one per VP by the slot
// protocol); the rest is atomic.
unsafe impl Sync for Vp {}
// SAFETY: as above.
unsafe impl Send for Vp {}

impl Vp {
    /// A VP that no kernel thread carries yet.
    ///
    /// # Safety
    /// `instance` is the address of the `Instance` that will hold the VP; nothing reads it before
    /// the instance is there.
    pub(crate) unsafe fn new(
        index: usize,
        instance: *const (),
        seats: &BoardSeats,
        queue: Owner<Mp>,
        design: Design,
        keeps_account: bool,
    ) -> std::io::Result<Vp> {
        Ok(Vp {
            keeps_account,
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
            alone: Cell::new(false),
            may_share: Cell::new(false),
            up_since: Cell::new(0),
            resched: Cell::new(None),
            since_ns: Cell::new(0),
            turn: Cell::new((0, 0)),
            queue,
            timers: UnsafeCell::new(Timers::default()),
            pool: VpPool::new(),
            regions: RegionCache::new(),
            poller: Poller::new(index)?,
            busy_poll: BusyPoll::default(),
            yield_core: YieldCore::default(),
            counters: Counters::default(),
            published: PublishedLevels::new(),
            idle: Idle::new(seats.row, index)?,
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

    /// With what happens here noted there.
    pub(crate) fn traced(self, trace: Option<Arc<Ring>>) -> Vp {
        Vp { core_claim: self.core_claim.traced(trace.as_ref()), trace, ..self }
    }

    /// The microprocess that runs here. Owner only.
    #[inline(always)]
    pub(crate) fn running(&self) -> Option<&'static Mp> {
        // SAFETY: the owner runs on the kernel thread that carries this VP: not foreign.
        unsafe { gs_record::running_here() }
    }

    /// The one that leaves, in the middle of a switch.
    pub(crate) fn leaving(&self) -> Option<&'static Mp> {
        // SAFETY: null or a record, which lives for ever.
        unsafe { self.left_by.get().as_ref() }
    }

    /// The run queue. Owner only.
    #[inline(always)]
    pub(crate) fn queue(&self) -> Owner<Mp> {
        self.queue
    }

    /// The timers. Owner only; the borrow must end before anything that switches or asks for them
    /// again.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn timers(&self) -> &mut Timers {
        // SAFETY: the owner's half; every use in this crate is one call long.
        unsafe { &mut *self.timers.get() }
    }

    /// Takes in what others sent: every time what is cheap to see, now and then the rest.
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

    /// Clock, timers, descriptors, requests from outside, sharing.
    #[cold]
    pub(crate) fn slow_steps(&self) {
        let now = self.instance().now();
        self.pace(now);
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
        // One that computes passes switch points without a switch, and what the previous VP gave
        // away would wait for one.
        if let Some(taker) = self.queue.exchange() {
            self.instance().wake_idle(taker);
        }
        self.check_turn(now);
        if self.poller.is_used() && now.saturating_sub(self.polled_ns.get()) >= POLL_EVERY {
            self.polled_ns.set(now);
            // The few that go first make small batches.
            self.poller
                .poll_ready(Vp::ready_go_first(now) && !self.instance().batch_config.gathers());
        }
        if self.may_share.get() {
            // A woken one stays with those that woke it; not for ever beside a VP that has nothing
            // to do.
            self.queue.loosen();
        }
        if self.running().is_some() {
            // Those that only yield never come through `push`: without this they would stay on the
            // VP where they began, beside idle ones.
            if let Some(taker) = self.queue.surplus(self.instance().any_idle()) {
                self.given_away(taker);
            }
            // An idling VP has not booked it yet.
            self.syscall_batch.look(now, self.counters.idle_ns.load(Ordering::Relaxed));
        }
        self.rebalance_now();
    }

    pub(crate) fn fire_timers(&self, now: u64) {
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

    /// With many runnable, each one's lines have left the caches when its turn comes. So the one
    /// after next is fetched while the next runs: its record now; the stack of the one before it,
    /// whose record was fetched a turn ago.
    #[inline(always)]
    fn warm_up_next(&self) {
        let Some(item) = self.queue.peek() else { return };
        // SAFETY: queued items are records, and this one is in our queue: its context is complete.
        let next = unsafe { &*item.as_ptr() };
        // SAFETY: as above.
        let stack = unsafe { *next.context.get() }.stack_pointer();
        prefetch::prefetch(stack);
        for line in 1..WARM_LINES {
            prefetch::prefetch(stack.wrapping_add(line * 64));
        }
        let block = next.fs.get() as *const u8;
        prefetch::prefetch(block.wrapping_offset(self.standing_offset));
        // One that has hardly a frame yet begins, and perhaps ends at once: then it goes through
        // its whole block.
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

    /// Something to run, for an idle carrier: own queue first, then what the design lets it take
    /// from others.
    pub(crate) fn pick_or_pull(&self) -> Option<&'static Mp> {
        self.pick()
            .or_else(|| if self.may_pull() && self.queue.pull() { self.pick() } else { None })
    }

    #[inline]
    pub(crate) fn account_for(&self, next: &Mp) {
        if self.keeps_account {
            self.book_time();
            let account = next.account.get();
            self.turn_clock
                .quantum
                .store(account.quantum_ns.saturating_sub(account.ran_ns), Ordering::Relaxed);
        }
        let home = self.index as u16;
        if next.home.load(Ordering::Relaxed) != home {
            next.home.store(home, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn commit_park(&self, mp: &'static Mp) {
        match mp.state.commit_park() {
            Park::Parked => {}
            Park::Permit => self.woken_before(mp),
        }
    }

    /// One that was counted as ended goes on.
    pub(crate) fn uncount_end(&self) {
        let ended = &self.counters.ended;
        ended.store(ended.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    /// `why` is an encoded [`park::Wait`].
    #[inline(always)]
    pub(crate) fn note_wait(&self, mp: &Mp, (kind, object): (u8, usize)) {
        mp.wait_kind.store(kind, Ordering::Relaxed);
        mp.wait_object.store(object, Ordering::Relaxed);
    }
}
