//! A machine of one VP, its kernel threads and two microprocesses, composed of the real parts:
//! state words, run queue with injector, timers, idle half and cell, slots, carriers, return queue.
//!
//! The loop of a carrier and the pool's wait are written here, since the real ones switch stacks
//! and call the kernel. Everything in them that two kernel threads share is the real code. The
//! kernel's half is a part of the model: a call that sleeps, the event that reports it, epoll and
//! futexes.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ::loom::cell::UnsafeCell;
use ::loom::sync::atomic::{AtomicBool, Ordering};
use ::loom::sync::{Arc, Condvar, Mutex};
use kumihimo_arbiter::row::{Cell, Head, Reach, Row};
use kumihimo_arch::cpu::Context;
use kumihimo_arch::stack::Class;
use kumihimo_events::carriers::Carriers;
use kumihimo_events::return_queue::{self, Offer};
use kumihimo_events::{Slot, slot};
use kumihimo_queue::{Capacity, Design, Origin, Owner, Place, Set};
use kumihimo_resource::id::Serial;

use crate::idle::poller::Poller;
use crate::idle::sleep::{self, Idle};
use crate::idle::timer::{BATCH, Timers};
use crate::loom::Unparker;
use crate::microprocess::protocol::state::{Park, Wake};
use crate::microprocess::record::{Mp, Ref};

/// Kernel threads of the machine. Slot 0 is no thread's.
pub(super) const THREADS: usize = 2;
const VP: u64 = slot::token(0);
/// When the timer of the waiter is due.
pub(super) const DUE: u64 = 1_000;

/// What the machine does.
#[derive(Clone, Copy, Default)]
pub(super) struct Scenario {
    /// How the call of the sleeper gives the VP away, if it has one.
    pub(super) call: Option<Call>,
    /// Whether the waiter's wait has a deadline.
    pub(super) has_timer: bool,
    /// Whether another thread wakes the waiter.
    pub(super) has_waker: bool,
    /// Whether the VP has descriptors from the beginning.
    pub(super) has_descriptors: bool,
    /// Whether the returning sleeper waits for the VP where it stands.
    pub(super) traps: bool,
}

/// A call that sleeps in the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// The event source lends the VP when the kernel thread sleeps.
    Reported,
    /// The kernel thread announces beforehand that it blocks.
    Announced,
}

/// A microprocess.
struct Microprocess {
    mp: NonNull<Mp>,
    /// Stands for its stack: loom reports two kernel threads that run it, or a switch without
    /// order.
    stack: UnsafeCell<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Fresh,
    /// In its wait or call, or back from there.
    Within,
    Ended,
}

impl Microprocess {
    fn new(number: u32) -> Microprocess {
        let layout = Layout::new::<Mp>();
        // SAFETY: not empty; the record is written below the end of the block.
        let mp = unsafe {
            let end = alloc(layout).add(layout.size());
            Mp::create(end, Class::MAX, end, 0, Serial::new(number, 1))
        };
        // Any context but none: it can be switched to.
        // SAFETY: a context is one word, and no other thread has the record yet.
        unsafe { mp.context.get().cast::<usize>().write(1) };
        mp.state.begin();
        Microprocess { mp: NonNull::from(mp), stack: UnsafeCell::new(Step::Fresh) }
    }

    fn record(&self) -> &'static Mp {
        // SAFETY: freed with the machine, which is the last to go.
        unsafe { self.mp.as_ref() }
    }

    fn with_stack<R>(&self, f: impl FnOnce(&mut Step) -> R) -> R {
        // SAFETY: exclusive if the protocols are right, which loom checks.
        self.stack.with_mut(|step| f(unsafe { &mut *step }))
    }
}

impl Drop for Microprocess {
    fn drop(&mut self) {
        // SAFETY: `new` allocated and wrote it.
        unsafe {
            self.mp.drop_in_place();
            dealloc(self.mp.as_ptr().cast(), Layout::new::<Mp>());
        }
    }
}

/// The owner's half of the VP.
struct OwnersHalf {
    queue: Owner<Mp>,
    timers: Timers,
    /// Microprocesses that have ended.
    ended: usize,
}

/// The pool's state under its lock.
#[derive(Default)]
struct Pool {
    ready: Vec<u64>,
    /// Slots whose kernel threads sleep, by the event source.
    reported: Vec<usize>,
    /// Slots of kernel threads that announced a call.
    lent: Vec<usize>,
    /// A kernel thread of the pool was called, to look at `lent`.
    is_called: bool,
    is_dismissed: bool,
}

pub(super) struct Machine {
    scenario: Scenario,
    /// Owns the memory of `row`.
    memory: (NonNull<Head>, NonNull<[Cell]>),
    row: Row,
    queues: Set<Mp>,
    poller: Poller,
    idle: Idle,
    owners_half: UnsafeCell<OwnersHalf>,
    slots: [Slot; THREADS + 1],
    waiters: [return_queue::Waiter; THREADS + 1],
    carriers: Carriers,
    /// Whether a kernel thread is in its announced call.
    is_away: [AtomicBool; THREADS + 1],
    pool: Mutex<Pool>,
    pool_changed: Condvar,
    /// Makes a call that sleeps, if the scenario has one.
    sleeper: Microprocess,
    /// Waits for the waker or its timer.
    waiter: Microprocess,
    was_woken: AtomicBool,
    has_stopped: AtomicBool,
    /// The time, which passes when the idle VP has slept until a timer. Owner only.
    now: AtomicU64,
}

// SAFETY: what is not atomic is accessed by the VP's owner or a microprocess's holder, which loom
// checks.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

impl Machine {
    /// A machine whose VP is carried by kernel thread 1, masked, with both microprocesses runnable.
    pub(super) fn new(scenario: Scenario) -> Arc<Machine> {
        let cells: Box<[Cell]> = Box::new([Cell::new()]);
        let memory =
            (NonNull::from(Box::leak(Box::<Head>::default())), NonNull::from(Box::leak(cells)));
        // SAFETY: freed with the machine.
        let (head, cells) = unsafe { (memory.0.as_ref(), memory.1.as_ref()) };
        let row = Row { head, cells, reach: Reach::Private };
        let queues = Set::with_places(Design::Ring, 1, Capacity::default(), 2);
        let poller = Poller::new(scenario.has_descriptors);
        let idle = Idle::new(row, 0, &poller, Unparker).expect("no system call");
        // SAFETY: used by the VP's owner only; the set goes with the machine.
        let queue = unsafe { queues.local(0) };
        let machine = Machine {
            scenario,
            memory,
            row,
            queues,
            poller,
            idle,
            owners_half: UnsafeCell::new(OwnersHalf { queue, timers: Timers::default(), ended: 0 }),
            slots: Default::default(),
            waiters: [(); THREADS + 1].map(|()| return_queue::Waiter::new()),
            carriers: Carriers::new(1),
            is_away: [(); THREADS + 1].map(|()| AtomicBool::new(false)),
            pool: Mutex::new(Pool::default()),
            pool_changed: Condvar::new(),
            sleeper: Microprocess::new(1),
            waiter: Microprocess::new(2),
            was_woken: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
            now: AtomicU64::new(0),
        };
        machine.carriers.begin(&machine.slots[1], 1, VP, || ());
        for microprocess in [&machine.waiter, &machine.sleeper] {
            machine.push(microprocess.record());
        }
        Arc::new(machine)
    }

    fn own<R>(&self, f: impl FnOnce(&mut OwnersHalf) -> R) -> R {
        // SAFETY: exclusive if the protocols are right, which loom checks.
        self.owners_half.with_mut(|half| f(unsafe { &mut *half }))
    }

    fn push(&self, mp: &'static Mp) {
        // SAFETY: the caller holds the record.
        self.own(|half| unsafe {
            half.queue.push(NonNull::from(mp), Place::back(32), Origin::Wake)
        });
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Acquire)
    }
}

/// The user scheduler's half.
impl Machine {
    /// Runs microprocesses as the carrier of the VP. Returns once kernel thread `me` has lost it.
    pub(super) fn carry(&self, me: usize) {
        while !self.has_stopped() {
            self.take_injected();
            self.fire_timers();
            let next = self.own(|half| half.queue.pop());
            match next {
                // SAFETY: queued items are records.
                Some((item, _)) => {
                    if !self.go_on_with(me, unsafe { &*item.as_ptr() }) {
                        return;
                    }
                }
                None => self.sleep(),
            }
        }
    }

    fn take_injected(&self) {
        let chain =
            self.own(|half| (!half.queue.injector_is_empty()).then(|| half.queue.take_injected()));
        for item in chain.into_iter().flatten() {
            // SAFETY: an injected item is a record.
            self.push(unsafe { &*item.as_ptr() });
        }
    }

    fn fire_timers(&self) {
        let mut due = [None; BATCH];
        self.own(|half| half.timers.pop_due(self.now(), &mut due));
        for who in due.into_iter().flatten() {
            if who.wake() == Wake::Queue {
                self.push(who.mp);
            }
        }
    }

    /// As `Vp::sleep`.
    fn sleep(&self) {
        let at = self.own(|half| half.timers.next_wakeup(self.now()));
        let queue = self.own(|half| half.queue);
        let look = self.idle.prepare_sleep(queue, self.row.head, &self.poller, false, || true);
        if !look.has_work && !self.has_stopped() {
            let time = at.map(|at| Duration::from_nanos(at.saturating_sub(self.now())));
            self.idle.sleep(look.mode, &self.poller, time);
            if let Some(at) = at {
                self.now.store(at, Ordering::Relaxed);
            }
        }
        self.idle.get_up();
        self.fire_timers();
    }

    /// As `Carrier::go_on_with`. Returns whether kernel thread `me` still carries the VP.
    fn go_on_with(&self, me: usize, next: &'static Mp) -> bool {
        let is_sleeper = std::ptr::eq(next, self.sleeper.record());
        if is_sleeper && self.sleeper_waits_elsewhere() {
            let ticket = next.ticket.get();
            let waiter = &self.waiters[ticket.thread() as usize];
            match waiter.offer(ticket.generation()) {
                Offer::Accepted => {
                    let _ = self.carriers.clear(0, me as u32);
                    self.slots[me].remove();
                    self.carriers.hand(0, ticket.thread());
                    waiter.hand(VP);
                    return false;
                }
                Offer::EntryDropped => panic!("the sleeper never detaches"),
                Offer::Switchable => {}
            }
        }
        if is_sleeper { self.run_sleeper(me) } else { self.run_waiter() }
    }

    fn sleeper_waits_elsewhere(&self) -> bool {
        self.scenario.traps && self.sleeper.record().waits_elsewhere()
    }

    fn run_waiter(&self) -> bool {
        let mp = self.waiter.record();
        let parks = self.waiter.with_stack(|step| {
            loop {
                let is_due = self.scenario.has_timer && self.now() >= DUE;
                let was_woken = self.was_woken.load(Ordering::Relaxed);
                if *step == Step::Within {
                    // No other thread has a permit to leave.
                    assert!(is_due || was_woken, "woken without a cause");
                    if self.scenario.has_timer && !is_due {
                        // As `park_micro_until`: the wait has ended early.
                        mp.timer.store(mp.timer.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        self.own(|half| half.timers.disarmed());
                    }
                }
                if is_due || was_woken {
                    *step = Step::Ended;
                    return false;
                }
                *step = Step::Within;
                if mp.state.take_permit() {
                    continue;
                }
                if self.scenario.has_timer {
                    self.own(|half| half.timers.arm(mp.reference(), DUE));
                }
                return true;
            }
        });
        if !parks {
            mp.state.finish();
            self.end_one();
        } else if mp.state.commit_park() == Park::Permit {
            self.push(mp);
        }
        true
    }

    /// Runs the sleeper on kernel thread `me`. Returns whether that still carries the VP.
    fn run_sleeper(&self, me: usize) -> bool {
        let mp = self.sleeper.record();
        let is_mine = self.sleeper.with_stack(|step| {
            let calls = *step == Step::Fresh && self.scenario.call.is_some();
            *step = if calls { Step::Within } else { Step::Ended };
            match self.scenario.call {
                Some(call) if calls => {
                    let is_mine = self.call_that_sleeps(me, call);
                    if is_mine || self.scenario.traps && self.await_turn(me) {
                        *step = Step::Ended;
                    }
                    *step == Step::Ended
                }
                _ => true,
            }
        });
        if is_mine {
            self.end_one();
        } else {
            // It enters the runtime without a VP, and leaves its kernel thread, which goes to the
            // pool.
            // SAFETY: the caller runs the microprocess, which is LIVE and in no queue.
            unsafe { sleep::inject(&self.queues, 0, &self.idle, mp) };
        }
        is_mine
    }

    /// As `handoff::await_turn`: waits for the VP where the microprocess stands.
    fn await_turn(&self, me: usize) -> bool {
        let mp = self.sleeper.record();
        let generation = self.waiters[me].begin(Some(0)).expect("a new entry");
        // SAFETY: the caller runs the microprocess.
        unsafe { *mp.context.get() = Context::NULL };
        mp.ticket.set(return_queue::Ticket::new(me as u32, generation));
        // SAFETY: as above; its state is LIVE.
        unsafe { sleep::inject(&self.queues, 0, &self.idle, mp) };
        assert!(self.waiters[me].wait(|| 1, || false), "never released");
        self.carriers.begin(&self.slots[me], me as u32, self.waiters[me].token(), || ());
        true
    }

    fn end_one(&self) {
        let is_last = self.own(|half| {
            half.ended += 1;
            half.ended == 2
        });
        if is_last {
            self.has_stopped.store(true, Ordering::SeqCst);
            self.change_pool(|pool| pool.is_dismissed = true);
        }
    }
}

/// The kernel's half.
impl Machine {
    /// A call of kernel thread `me` that sleeps, and returns at any time. Returns whether the
    /// kernel thread still has the VP, masked.
    fn call_that_sleeps(&self, me: usize, call: Call) -> bool {
        let slot = &self.slots[me];
        match call {
            Call::Reported => {
                let _ = slot.exit();
                // On the sleeper's own core, when it goes to sleep.
                if slot.lend() {
                    self.change_pool(|pool| pool.reported.push(me));
                }
            }
            Call::Announced => {
                // As `KernelThread::lend`.
                self.is_away[me].store(true, Ordering::Release);
                self.pool.lock().unwrap().lent.push(me);
                slot.unmask();
                self.change_pool(|pool| pool.is_called = true);
            }
        }
        self.is_away[me].store(false, Ordering::Relaxed);
        let is_mine = slot.enter(VP);
        if !is_mine {
            self.carriers.await_clear(0, me as u32);
        }
        is_mine
    }

    fn change_pool(&self, f: impl FnOnce(&mut Pool)) {
        f(&mut self.pool.lock().unwrap());
        self.pool_changed.notify_all();
    }

    /// Kernel thread `me`: waits in the pool, carries the VP, loses it, and waits again.
    pub(super) fn live(&self, me: usize) {
        while let Some(token) = self.wait_in_pool() {
            self.carriers.begin(&self.slots[me], me as u32, token, || ());
            self.carry(me);
        }
    }

    fn wait_in_pool(&self) -> Option<u64> {
        let mut pool = self.pool.lock().unwrap();
        loop {
            if let Some(token) = pool.ready.pop() {
                return Some(token);
            }
            if pool.is_dismissed {
                return None;
            }
            if let Some(of) = pool.reported.pop() {
                drop(pool);
                self.take_over(of, Slot::accept);
            } else if pool.is_called {
                pool.is_called = false;
                let lent = std::mem::take(&mut pool.lent);
                drop(pool);
                lent.into_iter().for_each(|of| self.take_lent_from(of));
            } else {
                pool = self.pool_changed.wait(pool).unwrap();
                continue;
            }
            pool = self.pool.lock().unwrap();
        }
    }

    fn take_over(&self, of: usize, claim: fn(&Slot) -> slot::Claim) -> bool {
        let taken = self.carriers.take_over(&self.slots[of], of as u32, claim);
        let Some((_, token)) = taken else { return false };
        let mut pool = self.pool.lock().unwrap();
        // The VP is nowhere else.
        assert!(pool.ready.is_empty() && self.carriers.of(0) == 0, "two owners");
        pool.ready.push(token);
        true
    }

    /// As `Kernel::take_lent_from`.
    fn take_lent_from(&self, of: usize) {
        let is_away = || self.is_away[of].load(Ordering::Acquire);
        if !is_away() || self.take_over(of, Slot::claim) || !is_away() || !self.slots[of].has_vp() {
            return;
        }
        let opens = !self.slots[of].await_unmask();
        self.change_pool(|pool| {
            pool.lent.push(of);
            pool.is_called |= opens;
        });
    }
}

/// The world outside.
impl Machine {
    pub(super) fn waiter(&self) -> Ref {
        self.waiter.record().reference()
    }

    /// Wakes the waiter from a kernel thread without a VP.
    pub(super) fn wake_from_outside(&self, who: Ref) {
        self.was_woken.store(true, Ordering::Relaxed);
        if who.wake() == Wake::Queue {
            // SAFETY: the caller has moved it out of PARKED.
            unsafe { sleep::inject(&self.queues, 0, &self.idle, who.mp) };
        }
    }

    /// Checks the end state, after all threads have ended.
    pub(super) fn check(&self) {
        let pool = self.pool.lock().unwrap();
        let carriers = (1..=THREADS).filter(|of| self.slots[*of].has_vp()).collect::<Vec<_>>();
        assert_eq!(carriers.len() + pool.ready.len(), 1, "one owner");
        assert_eq!(self.carriers.of(0), carriers.first().map_or(0, |of| *of as u32));
        for microprocess in [&self.sleeper, &self.waiter] {
            microprocess.with_stack(|step| assert_eq!(*step, Step::Ended));
        }
        assert!(!self.queues.has_injected(0), "a microprocess was left behind");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: `new` leaked them.
        unsafe {
            drop(Box::from_raw(self.memory.0.as_ptr()));
            drop(Box::from_raw(self.memory.1.as_ptr()));
        }
    }
}
