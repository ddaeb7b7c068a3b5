//! Wrapped system calls (paper P2): which calls wait for a batch, and when one starts.
//!
//! A microprocess that makes a call either makes it at once, or leaves it with its virtual
//! processor and waits; [`Policy`] decides. The virtual processor makes all that it was left in one
//! batch when there are enough of them, when nothing else of their level is runnable here, or when
//! the first has waited for `DEADLINE`. To the microprocess it looks like any call that blocks: at
//! most one of its own is in a batch.
//!
//! A batch runs masked: its calls do not wait, and their buffers were touched before, so nothing of
//! it sleeps. A microprocess that waits for a batch is not cancelled meanwhile: the wait is
//! bounded, and the call's buffers are borrowed until it is over.

mod adjacent;
mod trial;

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kumihimo_batch::{
    Backend, Batch, Call, Costs, Counters, Decision, KINDS, Kind, LARGEST, Op, Plain, Policy,
    Situation,
};

use crate::carrier::{self, Carrier};
use crate::instance::Instance;
use crate::park::Wait;
use crate::record::{Mp, Ref};
use crate::vp::{Left, Vp};
use adjacent::LastReads;
use trial::{Reading, Trial};

pub use adjacent::follows_another;
pub use kumihimo_batch::order::{FIRST_COME, Order};
pub use kumihimo_batch::{Address, Message, Op as SystemCall};

/// Nanoseconds that a call waits for its batch to start, at most; on a virtual processor whose
/// microprocesses never leave, until these are interrupted.
const DEADLINE: u64 = 50_000;
/// Calls of a lower level that enter together, where levels differ: what becomes runnable meanwhile
/// waits for no more than these.
const STEP: usize = 16;

/// Nanoseconds over which it is told whether traffic is thin: where more than one part in `SPARE`
/// was idle. Longer than a few that come by chance at once keep everybody busy.
const LOOK_EVERY: u64 = 20_000_000;
const SPARE: u64 = 20;

/// How many have to be there (waiting, runnable, the caller) before a call of each kind is worth a
/// thought: one load on the way of every call.
static GATES: [AtomicU8; KINDS] = [const { AtomicU8::new(NEVER) }; KINDS];
const NEVER: u8 = u8::MAX;
/// As long as costs are not known: a program that never has as many pays for no measurement.
const MEASURE_FROM: u8 = 8;

/// How batches are made: for tests and experiments, a back end of one's own.
pub type MakeBackend = Arc<dyn Fn() -> Box<dyn Backend> + Send + Sync>;

/// The instance's part: policy, and what calls cost here.
pub(crate) struct Wrapping {
    /// [`Policy::to_word`]. Relaxed: it decides about each call alone.
    policy: AtomicU32,
    /// How often the policy was set.
    settings: AtomicU32,
    make: Option<MakeBackend>,
    costs: OnceLock<Costs>,
    /// Why there is no uring.
    refused: OnceLock<String>,
    /// Batches that came second to their virtual processor, for the next one that has none. Held
    /// while one is opened, so that there are few; and none is closed while the runtime runs: the
    /// kernel wakes every kernel thread that ever used a uring when that is closed
    /// (`io_ring_exit_work`), and a sleep that is interrupted so ends early (EINTR) if its kernel
    /// thread's return is told by a trap.
    spares: Mutex<Vec<Batch>>,
}

impl Wrapping {
    pub(crate) fn new(policy: Policy, make: Option<MakeBackend>) -> Wrapping {
        let wrapping = Wrapping {
            policy: AtomicU32::new(0),
            settings: AtomicU32::new(0),
            make,
            costs: OnceLock::new(),
            refused: OnceLock::new(),
            spares: Mutex::default(),
        };
        wrapping.set_policy(policy);
        wrapping
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy::of_word(self.policy.load(Ordering::Relaxed))
    }

    /// From the next call on.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.to_word(), Ordering::Relaxed);
        self.settings.fetch_add(1, Ordering::Relaxed);
        for kind in Kind::ALL {
            let gate = match policy {
                _ if kind.is_always_plain() => NEVER,
                Policy::Off => NEVER,
                Policy::Adaptive => self.pays_from(kind),
                Policy::Fixed(_) | Policy::Paper => 0,
            };
            GATES[kind as usize].store(gate, Ordering::Relaxed);
        }
    }

    /// Whether calls are gathered, though each by itself might be served sooner.
    pub(crate) fn gathers(&self) -> bool {
        matches!(self.policy(), Policy::Fixed(_) | Policy::Paper)
    }

    /// How many make a batch that is cheaper than plain calls.
    fn pays_from(&self, kind: Kind) -> u8 {
        let Some(costs) = self.costs.get() else { return MEASURE_FROM };
        let pays = Policy::Adaptive.gathers_from(kind, costs);
        pays.filter(|&n| n <= LARGEST).map_or(NEVER, |n| n as u8)
    }

    /// A batch for one virtual processor. Allocates, makes system calls, and waits while another
    /// one is opened: not while masked.
    fn open(&self) -> Box<Batch> {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batch) = spares.pop() {
            return Box::new(batch);
        }
        let backend: Box<dyn Backend> = match &self.make {
            Some(make) => make(),
            None if kumihimo_config::get().lab.uring == Some(false) => {
                let _ = self.refused.set("KUMI_LAB=uring=off".to_owned());
                Box::new(Plain)
            }
            None => {
                let (backend, refused) = kumihimo_batch::open(LARGEST as u32);
                if let Some(why) = refused {
                    let _ = self.refused.set(why.to_string());
                }
                backend
            }
        };
        let mut batch = Box::new(Batch::new(backend));
        if self.lacks_costs() {
            // Without descriptors nothing is known, and nothing is batched but for merging.
            self.costs.get_or_init(|| Costs::measure(&mut batch).unwrap_or_else(|_| Costs::none()));
            self.set_policy(self.policy());
        }
        batch
    }

    /// One that its virtual processor had no need of.
    fn keep(&self, batch: Box<Batch>) {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(*batch);
    }

    fn lacks_costs(&self) -> bool {
        self.costs.get().is_none() && matches!(self.policy(), Policy::Adaptive | Policy::Paper)
    }

    /// What calls cost, once that was measured; before, nothing is known to pay.
    fn costs(&self) -> &Costs {
        static UNKNOWN: Costs = Costs { entry: 0.0, kinds: [None; KINDS] };
        self.costs.get().unwrap_or(&UNKNOWN)
    }
}

/// The virtual processor's part. Owner only, but for the counters.
pub(crate) struct Wrapped {
    /// How many wait. Looked at in every switch.
    pub(crate) waiting: Cell<u32>,
    /// The highest level among them.
    level: Cell<u8>,
    /// When the first began to wait.
    since: Cell<u64>,
    calls: UnsafeCell<[NonNull<Call<'static>>; LARGEST]>,
    who: UnsafeCell<[Option<Ref>; LARGEST]>,
    batch: UnsafeCell<Option<Box<Batch>>>,
    /// Calls so far, and those of them that may be batched: the paper's alpha.
    asked: Cell<u64>,
    batchable: Cell<u64>,
    trial: Trial,
    /// There was time to spare lately: batches could save some of it, and would make callers wait
    /// for each other.
    thin: Cell<bool>,
    /// When that was looked at, and how long the virtual processor had been idle by then.
    looked: Cell<(u64, u64)>,
    last_reads: LastReads,
    pub(crate) counters: Counters,
}

impl Wrapped {
    pub(crate) fn new() -> Wrapped {
        Wrapped {
            waiting: Cell::new(0),
            level: Cell::new(0),
            since: Cell::new(0),
            calls: UnsafeCell::new([NonNull::dangling(); LARGEST]),
            who: UnsafeCell::new([const { None }; LARGEST]),
            batch: UnsafeCell::new(None),
            asked: Cell::new(0),
            batchable: Cell::new(0),
            trial: Trial::default(),
            thin: Cell::new(true),
            looked: Cell::new((0, 0)),
            last_reads: LastReads::new(),
            counters: Counters::default(),
        }
    }

    fn is_open(&self) -> bool {
        // SAFETY: the owner's; the borrow ends here.
        unsafe { (*self.batch.get()).is_some() }
    }

    /// By when the first has to enter.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        (self.waiting.get() > 0).then(|| self.since.get() + DEADLINE)
    }

    fn add(&self, call: NonNull<Call<'static>>, who: Ref, level: u8, now: impl FnOnce() -> u64) {
        let n = self.waiting.get();
        if n == 0 {
            self.since.set(now());
            self.level.set(level);
        }
        self.level.set(self.level.get().max(level));
        // SAFETY: the owner's; no borrow is kept. There is room: a full batch is run before anybody
        // else is let in.
        unsafe {
            (*self.calls.get())[n as usize] = call;
            (*self.who.get())[n as usize] = Some(who);
        }
        self.waiting.set(n + 1);
    }

    /// At a look at the clock: whether traffic is thin.
    pub(crate) fn look(&self, now: u64, idle: u64) {
        let (at, before) = self.looked.get();
        if now.saturating_sub(at) >= LOOK_EVERY {
            self.thin.set((idle - before) * SPARE > now - at);
            self.looked.set((now, idle));
        }
    }

    fn share(&self) -> f64 {
        self.batchable.get() as f64 / self.asked.get().max(1) as f64
    }
}

/// Makes a system call for the calling microprocess: alone and at once, or in a batch. `shared`:
/// others use the same object, so calls may become one.
///
/// Blocks the microprocess while it waits for its batch, at most for some 50 us and the batches
/// before it; on a foreign kernel thread never. No cancellation point. The outcome is that of the
/// call alone.
///
/// # Errors
/// As the system call; `WouldBlock` where it would have had to wait.
#[inline]
pub fn call(op: Op<'_>, shared: bool) -> io::Result<usize> {
    if GATES[op.kind() as usize].load(Ordering::Relaxed) == NEVER && !shared {
        return alone(op);
    }
    call_together(op, shared)
}

/// Makes a system call, alone and at once. Blocks the kernel thread for as long as that takes.
///
/// # Errors
/// As [`call`].
#[inline]
pub fn alone(mut op: Op<'_>) -> io::Result<usize> {
    kumihimo_batch::alone(&mut op).result()
}

#[inline(never)]
fn call_together(mut op: Op<'_>, shared: bool) -> io::Result<usize> {
    // Before the mask: a fault is the caller's own affair.
    op.touch();
    let (carrier, threshold) = loop {
        let Some(carrier) = Carrier::regain().filter(Carrier::is_running) else { return alone(op) };
        let vp = carrier.vp();
        let level = vp.level.get();
        match carrier.decide(&op, level, shared) {
            Verdict::Plain => {
                drop(carrier);
                return alone(op);
            }
            Verdict::Wait(threshold) => break (carrier, threshold),
            Verdict::Prepare => {}
        }
        // It may be another one's next time.
        let instance = vp.instance().counted();
        drop(carrier);
        let batch = instance.wrapping.open();
        let Some(carrier) = Carrier::regain() else {
            instance.wrapping.keep(batch);
            return alone(op);
        };
        let spare = carrier.vp().wrapped.install(batch);
        drop(carrier);
        if let Some(batch) = spare {
            instance.wrapping.keep(batch);
        }
    };
    let vp = carrier.vp();
    let Some(mp) = carrier.running() else { unreachable!("asked above") };
    let level = vp.level.get();
    let mut call = Call::new(op, level);
    let at = NonNull::from(&mut call);
    // What lies behind `at` is touched by its batch from here on, and by the caller only through
    // it.
    vp.wrapped.add(at.cast(), mp.reference(), level, || vp.instance().now());
    if vp.wrapped.waiting.get() == 1 {
        vp.tick.sooner(vp.wrapped.since.get() + DEADLINE);
    }
    if vp.wrapped.waiting.get() as usize >= threshold || vp.batch_is_due() {
        vp.run_batch(Some(mp));
    }
    // SAFETY: alive until this function returns, and nobody touches it once it has an outcome.
    let outcome = || unsafe { at.as_ref() }.outcome;
    let mut carrier = Some(carrier);
    loop {
        if let Some(outcome) = outcome() {
            return outcome.result();
        }
        match carrier.take().or_else(Carrier::regain) {
            Some(carrier) => wait(carrier, mp),
            None => unreachable!("a microprocess is on a virtual processor wherever it waits"),
        }
    }
}

fn wait(carrier: Carrier, mp: &'static Mp) {
    if !mp.state.take_permit() {
        carrier.vp().note_wait(mp, Wait::Batch.encode());
        carrier.leave(Left::Parked);
    }
}

impl Wrapped {
    /// Takes `batch` into use, unless there is one by now. What is left over.
    fn install(&self, batch: Box<Batch>) -> Option<Box<Batch>> {
        // SAFETY: the owner's; the borrow ends here.
        let place = unsafe { &mut *self.batch.get() };
        if place.is_some() {
            return Some(batch);
        }
        *place = Some(batch);
        None
    }
}

/// What is to be done about a call.
enum Verdict {
    /// Made at once.
    Plain,
    /// It waits until so many wait.
    Wait(usize),
    /// First the batch has to be opened, or the costs measured.
    Prepare,
}

impl Carrier {
    fn decide(&self, op: &Op<'_>, level: u8, shared: bool) -> Verdict {
        let vp = self.vp();
        let (wrapped, instance) = (&vp.wrapped, vp.instance());
        let kind = op.kind();
        let gate = GATES[kind as usize].load(Ordering::Relaxed);
        let waiting = wrapped.waiting.get() as usize;
        let runnable = if vp.queue().levels() >> level == 0 { 0 } else { vp.queue().len() };
        wrapped.asked.set(wrapped.asked.get() + 1);
        wrapped.batchable.set(wrapped.batchable.get() + u64::from(!kind.is_always_plain()));
        let wrapping = &instance.wrapping;
        if !shared
            && (waiting + runnable + 1 < usize::from(gate)
                || wrapped.thin.get() && !wrapping.gathers())
        {
            return Verdict::Plain;
        }
        if wrapping.lacks_costs() && gate != NEVER {
            // The first that may be worth it has the costs measured.
            return Verdict::Prepare;
        }
        let living = if wrapping.policy() == Policy::Paper {
            instance.living() as usize / instance.vps.len()
        } else {
            0
        };
        let now = Situation { waiting, runnable, living, shared, share: wrapped.share() };
        match wrapping.policy().decide(kind, wrapping.costs(), now) {
            Decision::Plain => Verdict::Plain,
            // What can be merged saves more than any such trial is about.
            Decision::Wait(_)
                if wrapping.policy() == Policy::Adaptive
                    && !shared
                    && kind != Kind::Nop
                    && !self.batches_pay() =>
            {
                Verdict::Plain
            }
            Decision::Wait(_) if !wrapped.is_open() => Verdict::Prepare,
            Decision::Wait(n) => Verdict::Wait(n),
        }
    }

    /// As far as was tried out here.
    fn batches_pay(&self) -> bool {
        let vp = self.vp();
        let setting = vp.instance().wrapping.settings.load(Ordering::Relaxed);
        vp.wrapped.trial.in_batches(setting, vp.poller.waited_for(), || self.reading())
    }

    #[cold]
    fn reading(&self) -> Reading {
        // Each kernel thread that lives has a base of its own.
        Reading { thread: self.kernel_thread().fs, on_core: carrier::cpu_time() }
    }
}

impl Vp {
    /// Whether no microprocess that could make a further call of that level comes before the
    /// waiting ones.
    pub(crate) fn batch_is_due(&self) -> bool {
        self.queue().levels() >> self.wrapped.level.get() == 0 && self.queue().injector_is_empty()
    }

    /// Before another one runs.
    #[inline]
    pub(crate) fn run_batch_if_due(&self) {
        if self.wrapped.waiting.get() > 0 && self.batch_is_due() {
            self.run_batch(None);
        }
    }

    /// At a look at the clock.
    pub(crate) fn run_batch_if_late(&self, now: u64) {
        if self.wrapped.deadline().is_some_and(|deadline| now >= deadline) {
            self.run_batch(None);
        }
    }

    /// Has the calls made that wait here, and their microprocesses made runnable, `but` the running
    /// one. Where levels differ the highest go first, and what is left when something above it has
    /// become runnable stays.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_batch(&self, but: Option<&'static Mp>) {
        let wrapped = &self.wrapped;
        wrapped.counters.waited(self.instance().now().saturating_sub(wrapped.since.get()));
        // SAFETY: the owner's, and nothing below comes back here: waking makes runnable, and no
        // more.
        let (batch, calls, who) = unsafe {
            (&mut *wrapped.batch.get(), &mut *wrapped.calls.get(), &mut *wrapped.who.get())
        };
        let Some(batch) = batch else { return };
        loop {
            let n = wrapped.waiting.get() as usize;
            let now = if self.one_level_only() {
                n
            } else {
                sort_by_level(&mut calls[..n], &mut who[..n]).min(STEP)
            };
            // SAFETY: each lies on the stack of a microprocess that waits for its outcome, or in
            // the caller's frame; `NonNull` has the layout of a reference, and nobody else touches
            // them before they have an outcome.
            let these =
                unsafe { &mut *(std::ptr::from_mut(&mut calls[..now]) as *mut [&mut Call<'_>]) };
            batch.order = order();
            batch.run(these, &wrapped.counters);
            wrapped.waiting.set((n - now) as u32);
            let mut woken = [const { None }; LARGEST];
            for (woken, who) in woken.iter_mut().zip(&mut who[..now]) {
                *woken = who.take();
            }
            calls.copy_within(now..n, 0);
            who[..n].rotate_left(now);
            for who in woken[..now].iter_mut().filter_map(Option::take) {
                if but.is_none_or(|me| !std::ptr::eq(me, who.mp)) {
                    crate::park::fetch_stack(who.mp);
                    self.wake(who);
                }
            }
            if n == now {
                return;
            }
            // SAFETY: as above; it still waits.
            wrapped.level.set(unsafe { calls[0].as_ref() }.level);
            if !self.batch_is_due() {
                return wrapped.since.set(self.instance().now());
            }
        }
    }
}

/// In which order batches enter: [`Order`] as a word, for experiments.
static ORDER: AtomicU8 = AtomicU8::new(3);

/// Changes in which order the calls of a batch enter the kernel, and whether they are merged: what
/// the default is measured against.
pub fn set_order(order: Order) {
    ORDER.store(u8::from(order.by_priority) | u8::from(order.by_content) << 1, Ordering::Relaxed);
}

fn order() -> Order {
    let word = ORDER.load(Ordering::Relaxed);
    Order { by_priority: word & 1 != 0, by_content: word & 2 != 0 }
}

/// The highest level first, else as they are. How many have that level.
fn sort_by_level(calls: &mut [NonNull<Call<'static>>], who: &mut [Option<Ref>]) -> usize {
    // SAFETY: they wait, and the caller is the owner of the list.
    let level = |call: &NonNull<Call<'static>>| unsafe { call.as_ref() }.level;
    // Insertion: few, nearly always in order, and without a buffer.
    for i in 1..calls.len() {
        let mut at = i;
        while at > 0 && level(&calls[at - 1]) < level(&calls[at]) {
            calls.swap(at - 1, at);
            who.swap(at - 1, at);
            at -= 1;
        }
    }
    calls.iter().take_while(|call| level(call) == level(&calls[0])).count()
}

/// Changes when batches are made, from the next call on: see
/// [`Builder::batch`](crate::runtime::Builder::batch).
///
/// # Errors
/// `NotFound`: no runtime runs.
pub fn set_batch_policy(policy: Policy) -> io::Result<()> {
    crate::instance::visit(|instance| match instance {
        Some(instance) => {
            instance.wrapping.set_policy(policy);
            Ok(())
        }
        None => {
            Err(io::Error::new(io::ErrorKind::NotFound, "no Kumihimo runtime runs in this process"))
        }
    })
}

/// What batches have done, and how they are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchMetrics {
    /// `adaptive`, `paper`, `fixed=N` or `off`.
    pub policy: String,
    /// `uring` or `plain`; `not yet` before the first batch.
    pub back_end: String,
    /// Why there is no uring, if one was wanted.
    pub refused: Option<String>,
    /// What is batched and what never is, in words, once the costs are known.
    pub explained: Vec<String>,
    /// Batches run.
    pub batches: u64,
    /// Calls in them.
    pub calls: u64,
    /// Kernel entries that they took.
    pub entries: u64,
    /// Calls that became part of another one's system call.
    pub merged: u64,
    /// Merged calls that were made once more, alone.
    pub again: u64,
    /// Nanoseconds that the first call of each batch waited for it to start, in all.
    pub waited_ns: u64,
    /// Batches of 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64 calls.
    pub sizes: [u64; kumihimo_batch::BUCKETS],
}

impl Instance {
    pub(crate) fn batch_metrics(&self) -> BatchMetrics {
        let wrapping = &self.wrapping;
        let mut sum = BatchMetrics {
            policy: wrapping.policy().to_string(),
            refused: wrapping.refused.get().cloned(),
            explained: wrapping
                .costs
                .get()
                .map_or_else(Vec::new, |costs| wrapping.policy().explain(costs)),
            ..BatchMetrics::default()
        };
        for vp in &self.vps {
            let c = &vp.wrapped.counters;
            sum.batches += c.batches.load(Ordering::Relaxed);
            sum.calls += c.calls.load(Ordering::Relaxed);
            sum.entries += c.entries.load(Ordering::Relaxed);
            sum.merged += c.merged.load(Ordering::Relaxed);
            sum.again += c.again.load(Ordering::Relaxed);
            sum.waited_ns += c.waited_ns.load(Ordering::Relaxed);
            for (sum, size) in sum.sizes.iter_mut().zip(&c.sizes) {
                *sum += size.load(Ordering::Relaxed);
            }
        }
        sum.back_end = match (&sum.refused, sum.batches) {
            (Some(_), _) => "plain",
            (None, 0) => "not yet",
            (None, _) => "uring",
        }
        .to_owned();
        sum
    }
}
