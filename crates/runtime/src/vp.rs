//! The virtual processor, and THE loop.
//!
//! A VP runs microprocesses one at a time. It has no stack of its own: the loop's body runs on the
//! stack of the microprocess that leaves ([`Carrier::leave`], [`Carrier::give_way`]), picks the
//! next one and switches to it directly; what is to be done with the one that left is done on the
//! stack of the one that came ([`Carrier::arrive`]), because only then is its context complete and
//! its stack free for others. Only when nothing is runnable does the VP go to its kernel thread's
//! own stack ([`crate::idle`]).
//!
//! Owner's half: plain cells, touched by the holder of the [`Carrier`]. Shared half: atomics,
//! touched by any thread.

mod core;
mod ready;
mod settle;
mod turn;

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_arbiter::row::Row;
use kumihimo_arch::{cpu, tls};
use kumihimo_policy::{Priority, Why};
use kumihimo_queue::{Design, Origin, Owner, Place};
use kumihimo_trace::ring::Ring;

use crate::board::Beds;
use crate::carrier::{self, Carrier};
use crate::courtesy::Courtesy;
use crate::exact::Shown;
use crate::idle::Idle;
use crate::instance::Instance;
use crate::lone::Lone;
use crate::park;
use crate::patience::Patience;
use crate::pool::VpPool;
use crate::readiness::Poller;
use crate::record::Mp;
use crate::region;
use crate::requests::Requests;
use crate::state::Park;
use crate::tick::Turn;
use crate::timer::{BATCH, Timers};
use crate::tracing;
use crate::wrapped::Wrapped;
pub(crate) use core::BOOK_AT_LATEST;
pub(crate) use settle::OneLevel;

/// Switches between two looks at what costs time to look at (clock, requests), at most; fewer where
/// those that run take their time, so that about [`turn::LOOK_EVERY`] passes between two looks.
const SLOW_STEPS_EVERY: u32 = 61;
/// Nanoseconds between two system calls that ask for ready descriptors while there is something to
/// run.
const POLL_EVERY: u64 = 100_000;

/// How much of the next one's stack is fetched ahead: the frames of a wait and of its caller.
const WARM_LINES: usize = 5;

/// How far below its record the stack pointer of one is, at most, that has not run yet.
const FRESH: usize = 384;

/// What the leaving microprocess wants done with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing: nobody left (an idle carrier), or it is taken care of.
    Nothing,
    /// It is runnable: back into the queue.
    GaveWay(Why),
    /// It is runnable and goes before the others of its level (its child runs first).
    ToFront,
    /// It sleeps, unless a permit is there.
    Parked,
    /// It has ended.
    Ended,
    /// It has ended, and the microprocess that runs next is a joiner that it has woken.
    EndedToJoiner,
    /// It is suspended.
    Held,
}

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
    queue: Owner<Mp>,
    /// Level of the running one.
    pub(crate) level: Cell<u8>,
    /// See [`settle`].
    one_level: OneLevel,
    left: Cell<Left>,
    pub(crate) left_by: Cell<*const Mp>,
    countdown: Cell<u32>,
    /// What the countdown begins with.
    look_every: Cell<u32>,
    looked_ns: Cell<u64>,
    polled_ns: Cell<u64>,
    /// Nothing may be queued, and the timekeeper was notified of that: see [`crate::tick`].
    pub(crate) alone: Cell<bool>,
    /// As of the last look: another VP sleeps and is rested.
    may_share: Cell<bool>,
    /// When it last woke up.
    pub(crate) up_since: Cell<u64>,
    keeps_account: bool,
    fsgsbase: bool,
    standing_offset: isize,
    /// See [`tls::Tls::lines`].
    block_lines: Box<[isize]>,
    /// A yielding microprocess may be queued before its context is left: no other thread takes from
    /// this queue, and its run time is not needed.
    queues_early: bool,
    /// Why the running one should give way at the next switch point, if it should.
    pub(crate) urge: Cell<Option<Why>>,
    pub(crate) index: usize,
    instance: *const Instance,
    pub(crate) counters: Counters,
    since_ns: Cell<u64>,
    /// Where nobody is timed at a switch: the number of switches at the last look, and since when
    /// it is the same (0: not yet known).
    turn: Cell<(u64, u64)>,
    timers: UnsafeCell<Timers>,
    pub(crate) pool: VpPool,
    pub(crate) regions: region::Kept,
    pub(crate) poller: Poller,
    pub(crate) lone: Lone,
    pub(crate) courtesy: Courtesy,
    pub(crate) tick: Turn,
    pub(crate) patience: Patience,
    /// The next one, which waits for its turn on another kernel thread: the VP goes there from this
    /// one's own stack.
    pub(crate) promised: Cell<Option<&'static Mp>>,
    /// Where what happens here is noted, if it is.
    pub(crate) trace: Option<Arc<Ring>>,
    /// System calls that wait to enter the kernel together. Its counters are shared.
    pub(crate) wrapped: Wrapped,
    // Shared half.
    pub(crate) shown: Shown,
    pub(crate) idle: Idle,
    core: core::Core,
    pub(crate) requests: Requests,
}

// SAFETY: the owner's half is reached through a `Carrier` (not `Send`, one per VP by the slot
// protocol); the rest is atomic.
unsafe impl Sync for Vp {}
// SAFETY: as above.
unsafe impl Send for Vp {}

// ---- THE
// loop ------------------------------------------------------------------------------------------

impl Carrier {
    /// The running microprocess leaves and the next one comes. Returns when the caller is
    /// continued, perhaps elsewhere.
    #[inline(always)]
    pub(crate) fn leave(self, left: Left) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.run_batch_if_due();
        match vp.pick() {
            Some(next) => self.switch(next, left),
            None => self.switch_to_idle(left),
        }
    }

    /// The running microprocess lets those of its level, or above, go first. Comes back at once if
    /// there are none.
    pub(crate) fn give_way(self, why: Why) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.urge.set(None);
        let level = vp.level.get();
        tracing::gives_way(vp, why);
        match vp.pick_at_least(level) {
            None => {
                if !vp.is_plain(level) {
                    vp.runs_on();
                    // Urged to leave it would come here again, and nobody is there to leave to.
                    if vp.has_lost_core() {
                        return self.switch_to_idle(Left::GaveWay(why));
                    }
                }
                self
            }
            Some(next) if vp.queues_early && vp.is_plain(level) && next.level.get() == level => {
                // Queued before its context is left: nobody but this VP takes it out, and not
                // before the switch. Neither `surplus` nor `settle` is called in between.
                // SAFETY: the running microprocess is ours; records live for ever.
                unsafe {
                    vp.queue.push(
                        NonNull::new_unchecked(self.kernel_thread().current.get().cast_mut()),
                        Place::back(level),
                        Origin::Yield,
                    )
                };
                self.switch_unsettled(next, Left::Nothing)
            }
            Some(next) => self.switch(next, Left::GaveWay(why)),
        }
    }

    /// The running microprocess lets those of a higher level go first, if there are any (still).
    #[cold]
    fn give_way_to_higher(self) -> Carrier {
        let vp = self.vp();
        vp.look_around();
        vp.urge.set(None);
        let level = vp.level.get();
        tracing::gives_way(vp, Why::Outranked);
        if vp.has_lost_core() {
            return self.switch_to_idle(Left::GaveWay(Why::Outranked));
        }
        let next = if level < Priority::HIGHEST.get() { vp.pick_at_least(level + 1) } else { None };
        match next {
            None => {
                vp.runs_on();
                self
            }
            Some(next) => self.switch(next, Left::GaveWay(Why::Outranked)),
        }
    }

    /// `next` continues here, now. It is the caller's to run.
    #[inline(always)]
    pub(crate) fn switch(self, next: &'static Mp, left: Left) -> Carrier {
        if !self.vp().is_plain(next.level.get()) {
            self.vp().runs(next);
        }
        self.switch_unsettled(next, left)
    }

    #[inline(always)]
    fn switch_unsettled(self, next: &'static Mp, left: Left) -> Carrier {
        self.kernel_thread().announce(next);
        if next.state.is_suspended() {
            return self.switch_to_another(next, left);
        }
        self.switch_to_runnable(next, left)
    }

    /// It was announced, and is not suspended.
    #[inline(always)]
    pub(crate) fn switch_to_runnable(self, next: &'static Mp, left: Left) -> Carrier {
        let vp = self.vp();
        let fs = if next.fs.get() == 0 { self.kernel_thread().fs } else { next.fs.get() };
        if next.waits_elsewhere() {
            return self.promise(next, left);
        }
        vp.account_for(next);
        vp.level.set(next.level.get());
        self.kernel_thread().show(next);
        // SAFETY: `next` was taken out of a queue (or is new): its context is complete and it is
        // ours alone.
        unsafe { self.cross(next, *next.context.get(), fs, left) }
    }

    /// Nothing is runnable: to the kernel thread's own stack.
    #[inline(always)]
    pub(crate) fn switch_to_idle(self, left: Left) -> Carrier {
        let kt = self.kernel_thread();
        let (context, fs) = (kt.idle.get(), kt.fs);
        // SAFETY: the carrier's own context was saved when it ran its first microprocess, and
        // waits.
        unsafe { self.cross(std::ptr::null(), *context, fs, left) }
    }

    /// What the one that left wanted done. First thing on the new stack.
    #[inline(always)]
    pub(crate) fn arrive(self) -> Carrier {
        // A kernel thread that lost its VP inside `blocking` comes to its own stack without one.
        if !self.has_vp() {
            return self;
        }
        let vp = self.vp();
        let left = vp.left.replace(Left::Nothing);
        // The two most frequent ones by themselves: branches are predicted better than a jump
        // through a table.
        if left == Left::Nothing {
            return self;
        }
        // SAFETY: something is to be done with it, so it is a record, which lives for ever; its
        // context is saved and it is ours alone.
        let by = unsafe { &*vp.left_by.get() };
        if left == Left::Parked {
            vp.commit_park(by);
        } else {
            self.arrive_otherwise(left, by);
        }
        self
    }

    // Not inlined: the frame of `leave` stays small.
    #[inline(never)]
    fn arrive_otherwise(&self, left: Left, by: &'static Mp) {
        let vp = self.vp();
        match left {
            Left::Nothing | Left::Parked => {}
            Left::GaveWay(why) => vp.make_ready(by, why, Origin::Yield),
            Left::ToFront => vp.make_ready_front(by),
            Left::Ended => crate::join::left(self, by, None),
            Left::EndedToJoiner => {
                crate::join::left(self, by, Some(self.kernel_thread().current.get()));
            }
            Left::Held => vp.left_to_hold(by),
        }
    }
}

// ---- Steps of the
// loop ------------------------------------------------------------------------------------------

impl Carrier {
    /// The switch proper.
    ///
    /// # Safety
    /// `to` is the saved context of `next` (null: of this kernel thread itself), complete and ours;
    /// `fs` is its FS base.
    #[inline(always)]
    unsafe fn cross(self, next: *const Mp, to: cpu::Context, fs: usize, left: Left) -> Carrier {
        // The mask stays: the microprocess that continues here has the right, and `arrive` on the
        // other side makes it a `Carrier` again.
        let this = std::mem::ManuallyDrop::new(self);
        let (vp, kt) = (this.vp(), this.kernel_thread());
        debug_assert_eq!(kt.slot().depth(), 1);
        let me = kt.current.replace(next);
        tracing::switched(vp, me, next, left);
        vp.left.set(left);
        vp.left_by.set(me);
        bump(&vp.counters.switches);
        let (save, own_fs) = if me.is_null() {
            (kt.idle.get(), kt.fs)
        } else {
            // SAFETY: the running microprocess's record.
            let me = unsafe { &*me };
            (me.context.get(), if me.fs.get() == 0 { kt.fs } else { me.fs.get() })
        };
        // SAFETY: the caller's promise. The old context is published (queued, parked, freed) by
        // `arrive` only, on the new stack.
        unsafe {
            if fs == own_fs {
                cpu::switch_same(save, to);
            } else if vp.fsgsbase {
                cpu::switch_fs(save, to, fs);
            } else {
                cpu::switch_prctl(save, to, fs);
            }
            Carrier::here().arrive()
        }
    }

    /// A switch point inside something that does not block: gives way if something of a higher
    /// level came, or the quantum is over.
    #[inline]
    pub(crate) fn switch_point(self) -> Carrier {
        let vp = self.vp();
        let n = vp.countdown.get();
        if n == 0 {
            vp.slow_steps();
        } else {
            vp.countdown.set(n - 1);
        }
        match vp.urge.get() {
            Some(_) if self.is_to_hold() => self.leave(Left::Held),
            Some(Why::Outranked) => self.give_way_to_higher(),
            Some(why) => self.give_way(why),
            None => self,
        }
    }
}

impl Vp {
    pub(crate) fn new(
        index: usize,
        instance: *const Instance,
        beds: &Beds,
        queue: Owner<Mp>,
        design: Design,
        keeps_account: bool,
    ) -> std::io::Result<Vp> {
        Ok(Vp {
            keeps_account,
            fsgsbase: cpu::fsgsbase(),
            standing_offset: carrier::standing_offset(),
            block_lines: tls::get().lines().into(),
            queues_early: design != Design::Steal && !keeps_account,
            index,
            instance,
            level: Cell::new(0),
            one_level: OneLevel::new(),
            left: Cell::new(Left::Nothing),
            left_by: Cell::new(std::ptr::null()),
            countdown: Cell::new(SLOW_STEPS_EVERY),
            look_every: Cell::new(SLOW_STEPS_EVERY),
            looked_ns: Cell::new(0),
            polled_ns: Cell::new(0),
            alone: Cell::new(false),
            may_share: Cell::new(false),
            up_since: Cell::new(0),
            urge: Cell::new(None),
            since_ns: Cell::new(0),
            turn: Cell::new((0, 0)),
            queue,
            timers: UnsafeCell::new(Timers::default()),
            pool: VpPool::new(),
            regions: region::Kept::new(),
            poller: Poller::new(index)?,
            lone: Lone::default(),
            courtesy: Courtesy::default(),
            counters: Counters::default(),
            shown: Shown::new(),
            idle: Idle::new(beds.row, index)?,
            core: core::Core::new(beds.seat_of(index)),
            row: beds.row,
            requests: Requests::default(),
            tick: Turn::new(),
            patience: Patience::default(),
            promised: Cell::new(None),
            trace: None,
            wrapped: Wrapped::new(),
        })
    }

    /// With what happens here noted there.
    pub(crate) fn traced(self, trace: Option<Arc<Ring>>) -> Vp {
        Vp { core: self.core.traced(trace.as_ref()), trace, ..self }
    }

    #[inline(always)]
    pub(crate) fn instance(&self) -> &Instance {
        // SAFETY: an instance outlives its VPs.
        unsafe { &*self.instance }
    }

    /// The microprocess that runs here. Owner only.
    #[inline(always)]
    pub(crate) fn running(&self) -> Option<&'static Mp> {
        // SAFETY: the owner runs on the kernel thread that carries this VP: not foreign.
        unsafe { carrier::running_here() }
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
            self.instance().rouse(taker);
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
        self.may_share.set(self.instance().someone_idles() && self.instance().someone_rests(now));
        self.requests.serve(self);
        self.idle.cell.note_look(self.instance().on_clock(now));
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
            self.instance().rouse(taker);
        }
        self.check_turn(now);
        if self.poller.is_used() && now.saturating_sub(self.polled_ns.get()) >= POLL_EVERY {
            self.polled_ns.set(now);
            // The few that go first make small batches.
            self.poller
                .poll_ready(turn::ready_go_first(now) && !self.instance().wrapping.gathers());
        }
        if self.may_share.get() {
            // A woken one stays with those that woke it; not for ever beside a VP that has nothing
            // to do.
            self.queue.loosen();
        }
        if self.running().is_some() {
            // Those that only yield never come through `push`: without this they would stay on the
            // VP where they began, beside idle ones.
            if let Some(taker) = self.queue.surplus(self.instance().someone_idles()) {
                self.given_away(taker);
            }
            // An idling VP has not booked it yet.
            self.wrapped.look(now, self.counters.idle_ns.load(Ordering::Relaxed));
        }
        self.settle_now();
    }

    pub(crate) fn fire_timers(&self, now: u64) {
        let mut due = [None; BATCH];
        loop {
            let n = self.timers().pop_due(now, &mut due);
            for who in due[..n].iter_mut().filter_map(Option::take) {
                park::fetch_stack(who.mp);
                self.wake(who);
            }
            if n < BATCH {
                let batch = self.wrapped.deadline();
                return self.tick.note_timer(self.timers().next().into_iter().chain(batch).min());
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
        park::fetch(stack);
        for line in 1..WARM_LINES {
            park::fetch(stack.wrapping_add(line * 64));
        }
        let block = next.fs.get() as *const u8;
        park::fetch(block.wrapping_offset(self.standing_offset));
        // One that has hardly a frame yet begins, and perhaps ends at once: then it goes through
        // its whole block.
        if std::ptr::from_ref(next).addr().wrapping_sub(stack.addr()) < FRESH && !block.is_null() {
            for line in &self.block_lines {
                park::fetch(block.wrapping_offset(*line));
            }
        }
        if let Some(after) = next.links.peek_next() {
            park::fetch(after.as_ptr().cast());
        }
    }

    #[inline]
    fn pick_at_least(&self, level: u8) -> Option<&'static Mp> {
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
            self.tick
                .quantum
                .store(account.quantum_ns.saturating_sub(account.ran_ns), Ordering::Relaxed);
        }
        let home = self.index as u16;
        if next.home.load(Ordering::Relaxed) != home {
            next.home.store(home, Ordering::Relaxed);
        }
    }

    #[inline]
    fn commit_park(&self, mp: &'static Mp) {
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
