//! Batched system calls (paper P2): which calls wait for a batch, and when a batch starts.
//!
//! A microprocess either makes a system call at once, or queues it at its VP and waits; [`Policy`]
//! decides. The VP makes all queued calls in one batch as soon as one of three conditions holds.
//! There are enough calls; or nothing else of their level is runnable on the VP; or the first call
//! has waited for `Builder::batch_deadline`. For the microprocess a queued call is like any call
//! that blocks, so at most one of its calls is in a batch.
//!
//! A batch runs masked. Its calls do not block, and their buffers were touched before, so no part
//! of the batch sleeps. A microprocess that waits for a batch cannot be cancelled meanwhile: the
//! wait is bounded, and the call borrows its buffers until it is over.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use kumihimo_batch::{Call, Decision, Kind, LARGEST, Op, Policy, Situation};

use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::process::clock::cpu_time;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::scheduler::vp::Vp;
use crate::syscall::batch_config;
use crate::syscall::batch_config::WORTHWHILE_FROM;
use crate::syscall::trial::Reading;

pub use crate::config::MakeBackend;
pub use kumihimo_batch::order::{FIRST_COME, Order};
pub use kumihimo_batch::{Address, Message, Op as SystemCall};

/// Number of calls of a lower level that enter the kernel together where levels differ. A
/// microprocess that becomes runnable meanwhile waits for no more than these.
const STEP: usize = 16;

/// Makes a system call for the calling microprocess, at once or in a batch. Pass `shared` if other
/// callers use the same object, so that several calls may be merged into one.
///
/// Blocks the microprocess while it waits for its batch: for some 50 us and the batches before it
/// at most. Never blocks for a batch on a foreign kernel thread. Not a cancellation point. The
/// outcome is the same as without a batch.
///
/// # Errors
/// As the system call; `WouldBlock` where the call would have had to wait.
#[inline]
pub fn call(op: Op<'_>, shared: bool) -> io::Result<usize> {
    if WORTHWHILE_FROM[op.kind() as usize].load(Ordering::Relaxed) == batch_config::NEVER && !shared
    {
        return alone(op);
    }
    call_together(op, shared)
}

/// Makes a system call at once, outside of any batch. Blocks the kernel thread for as long as the
/// call takes.
///
/// # Errors
/// As [`call`].
#[inline]
pub fn alone(mut op: Op<'_>) -> io::Result<usize> {
    kumihimo_batch::alone(&mut op).result()
}

#[inline(never)]
fn call_together(mut op: Op<'_>, shared: bool) -> io::Result<usize> {
    // Touched before the slot is masked, so that a page fault delays only the caller.
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
        // The caller may be on another VP in the next round.
        if !prepare(carrier) {
            return alone(op);
        }
    };
    let vp = carrier.vp();
    let Some(mp) = carrier.running() else { unreachable!("asked above") };
    let level = vp.level.get();
    let mut call = Call::new(op, level);
    let at = NonNull::from(&mut call);
    // From here on the batch owns what `at` points to, and the caller accesses it only through
    // `at`.
    vp.syscall_batch.add(at.cast(), mp.reference(), level, || vp.instance().now());
    if vp.syscall_batch.waiting.get() == 1
        && let Some(deadline) = vp.syscall_batch.deadline()
    {
        vp.turn_clock.sooner(deadline);
    }
    if vp.syscall_batch.waiting.get() as usize >= threshold || vp.batch_is_due() {
        vp.run_batch(Some(mp));
    }
    // SAFETY: alive until this function returns, and no other thread accesses it after it has an
    // outcome.
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

/// Opens a batch, or measures the costs, for the VP of `carrier`. Returns false if the caller has
/// no VP afterwards.
///
/// Not inlined: its locals would make the frame of each call that waits several kilobytes larger,
/// and the microprocess would touch another page of its stack.
#[cold]
#[inline(never)]
fn prepare(carrier: Carrier) -> bool {
    let instance = carrier.vp().instance().counted();
    drop(carrier);
    let batch = instance.batch_config.open();
    let Some(carrier) = Carrier::regain() else {
        instance.batch_config.keep(batch);
        return false;
    };
    let spare = carrier.vp().syscall_batch.install(batch);
    drop(carrier);
    if let Some(batch) = spare {
        instance.batch_config.keep(batch);
    }
    true
}

fn wait(carrier: Carrier, mp: &'static Mp) {
    if !mp.state.take_permit() {
        carrier.vp().note_wait(mp, Wait::Batch.encode());
        carrier.leave(AfterSwitch::Park).vp().finish_wait(mp);
    }
}

/// Decision about a call.
enum Verdict {
    /// The call is made at once.
    Plain,
    /// The call waits until this many calls wait.
    Wait(usize),
    /// The batch must be opened, or the costs measured, before the decision.
    Prepare,
}

impl Carrier {
    fn decide(&self, op: &Op<'_>, level: u8, shared: bool) -> Verdict {
        let vp = self.vp();
        let (queue, instance) = (&vp.syscall_batch, vp.instance());
        let kind = op.kind();
        let gate = WORTHWHILE_FROM[kind as usize].load(Ordering::Relaxed);
        let waiting = queue.waiting.get() as usize;
        let runnable = if vp.queue().levels() >> level == 0 { 0 } else { vp.queue().len() };
        queue.asked.set(queue.asked.get() + 1);
        queue.batchable.set(queue.batchable.get() + u64::from(!kind.is_always_plain()));
        let batch_config = &instance.batch_config;
        if !shared
            && (waiting + runnable + 1 < usize::from(gate)
                || queue.thin.get() && !batch_config.gathers())
        {
            return Verdict::Plain;
        }
        if batch_config.lacks_costs() && gate != batch_config::NEVER {
            // The first call for which a batch may be worth while triggers the measurement of the
            // costs.
            return Verdict::Prepare;
        }
        let living = if batch_config.policy() == Policy::Paper {
            instance.living() as usize / instance.open()
        } else {
            0
        };
        let now = Situation { waiting, runnable, living, shared, share: queue.share() };
        match batch_config.policy().decide(kind, batch_config.costs(), now) {
            Decision::Plain => Verdict::Plain,
            // A merge saves more than the trial could measure.
            Decision::Wait(_)
                if batch_config.policy() == Policy::Adaptive
                    && !shared
                    && kind != Kind::Nop
                    && !self.batches_pay() =>
            {
                Verdict::Plain
            }
            Decision::Wait(_) if !queue.is_open() => Verdict::Prepare,
            Decision::Wait(n) => Verdict::Wait(n),
        }
    }

    /// Whether the trial on this VP has found batches worth while.
    fn batches_pay(&self) -> bool {
        let vp = self.vp();
        let setting = vp.instance().batch_config.settings.load(Ordering::Relaxed);
        vp.syscall_batch.trial.in_batches(setting, vp.poller.waited_for(), || self.reading())
    }

    #[cold]
    fn reading(&self) -> Reading {
        // Each living kernel thread has an FS base of its own, which identifies it.
        Reading { thread: self.kernel_thread().fs, on_core: cpu_time() }
    }
}

impl Vp {
    /// Whether every microprocess that could make a further call of the waiting calls' level runs
    /// only after those calls.
    pub(crate) fn batch_is_due(&self) -> bool {
        self.queue().levels() >> self.syscall_batch.level.get() == 0
            && self.queue().injector_is_empty()
    }

    /// Runs the waiting batch, if it is due, before another microprocess runs.
    #[inline]
    pub(crate) fn run_batch_if_due(&self) {
        if self.syscall_batch.waiting.get() > 0 && self.batch_is_due() {
            self.run_batch(None);
        }
    }

    /// Runs the waiting batch, if it is late. Called at a clock check.
    pub(crate) fn run_batch_if_late(&self, now: u64) {
        if self.syscall_batch.deadline().is_some_and(|deadline| now >= deadline) {
            self.run_batch(None);
        }
    }

    /// Makes the waiting calls, and wakes their microprocesses except `but`, the running one. Where
    /// levels differ, the calls of the highest level are made first. The rest stays queued if a
    /// microprocess of a higher level has become runnable meanwhile.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_batch(&self, but: Option<&'static Mp>) {
        let queue = &self.syscall_batch;
        queue.counters.waited(self.instance().now().saturating_sub(queue.since.get()));
        // SAFETY: accessed by the owner only, and nothing below re-enters this function: waking
        // only makes a microprocess runnable.
        let (batch, calls, who) =
            unsafe { (&mut *queue.batch.get(), &mut *queue.calls.get(), &mut *queue.who.get()) };
        let Some(batch) = batch else { return };
        loop {
            let n = queue.waiting.get() as usize;
            let now = if self.has_common_level() {
                n
            } else {
                sort_by_level(&mut calls[..n], &mut who[..n]).min(STEP)
            };
            // SAFETY: each call is on the stack of a microprocess that waits for its outcome, or in
            // the caller's frame. `NonNull` has the layout of a reference, and no other thread
            // accesses the calls before they have an outcome.
            let these =
                unsafe { &mut *(std::ptr::from_mut(&mut calls[..now]) as *mut [&mut Call<'_>]) };
            batch.order = order();
            batch.run(these, &queue.counters);
            queue.waiting.set((n - now) as u32);
            let mut woken = [const { None }; LARGEST];
            for (woken, who) in woken.iter_mut().zip(&mut who[..now]) {
                *woken = who.take();
            }
            calls.copy_within(now..n, 0);
            who[..n].rotate_left(now);
            for who in woken[..now].iter_mut().filter_map(Option::take) {
                if but.is_none_or(|me| !std::ptr::eq(me, who.mp)) {
                    crate::microprocess::prefetch::prefetch_stack(who.mp);
                    self.wake(who);
                }
            }
            if n == now {
                return;
            }
            // SAFETY: as above; this call still waits.
            queue.level.set(unsafe { calls[0].as_ref() }.level);
            if !self.batch_is_due() {
                return queue.since.set(self.instance().now());
            }
        }
    }
}

/// Order in which the calls of a batch enter the kernel: [`Order`] as a word. Changed by
/// experiments.
static ORDER: AtomicU8 = AtomicU8::new(3);

/// Sets the order in which the calls of a batch enter the kernel, and whether they are merged. For
/// measurements against the default.
pub fn set_order(order: Order) {
    ORDER.store(u8::from(order.by_priority) | u8::from(order.by_content) << 1, Ordering::Relaxed);
}

fn order() -> Order {
    let word = ORDER.load(Ordering::Relaxed);
    Order { by_priority: word & 1 != 0, by_content: word & 2 != 0 }
}

/// Sorts the calls by level, highest first, stably. Returns the number of calls of the highest
/// level.
fn sort_by_level(calls: &mut [NonNull<Call<'static>>], who: &mut [Option<Ref>]) -> usize {
    // SAFETY: the calls wait, and the caller owns the list.
    let level = |call: &NonNull<Call<'static>>| unsafe { call.as_ref() }.level;
    // Insertion sort: the list is short and nearly always sorted, and no buffer is needed.
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

/// Sets the policy that decides when calls are batched, from the next call on: see
/// [`Builder::batch`](crate::api::runtime::Builder::batch).
///
/// # Errors
/// `NotFound` if no runtime runs in this process.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{self, BatchPolicy};
///
/// let policy = runtime::run(|| {
///     runtime::set_batch_policy(BatchPolicy::Fixed(8)).unwrap();
///     runtime::metrics().unwrap().batch.policy
/// })?;
/// assert_eq!(policy, "fixed=8");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_batch_policy(policy: Policy) -> io::Result<()> {
    crate::scheduler::instance::visit(|instance| match instance {
        Some(instance) => {
            instance.batch_config.set_policy(policy);
            Ok(())
        }
        None => {
            Err(io::Error::new(io::ErrorKind::NotFound, "no Kumihimo runtime runs in this process"))
        }
    })
}

/// Counters and configuration of system call batches.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{self, BatchMetrics};
///
/// let batch: BatchMetrics = runtime::run(|| runtime::metrics().unwrap().batch)?;
/// assert_eq!(batch.policy, "adaptive");
/// assert!(batch.entries <= batch.calls, "a batch saves entries into the kernel");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchMetrics {
    /// Name of the policy: `adaptive`, `paper`, `fixed=N` or `off`.
    pub policy: String,
    /// Name of the back end: `uring`, `plain`, or `custom` for that of `Builder::batch_back_end`;
    /// `not yet` before the first batch.
    pub back_end: String,
    /// Why io_uring is unavailable, if it was requested.
    pub refused: Option<String>,
    /// Textual explanation of which calls are batched, once the costs are known.
    pub explained: Vec<String>,
    /// Number of batches.
    pub batches: u64,
    /// Number of calls in batches.
    pub calls: u64,
    /// Number of kernel entries for these batches.
    pub entries: u64,
    /// Number of calls that were merged into another call's system call.
    pub merged: u64,
    /// Number of merged calls that were repeated alone.
    pub again: u64,
    /// Total time for which the first call of each batch waited for the batch to start, in
    /// nanoseconds.
    pub waited_ns: u64,
    /// Number of batches of 1, 2, 3-4, 5-8, 9-16, 17-32 and 33-64 calls.
    pub sizes: [u64; kumihimo_batch::BUCKETS],
}

impl Instance {
    pub(crate) fn batch_metrics(&self) -> BatchMetrics {
        let batch_config = &self.batch_config;
        let mut sum = BatchMetrics {
            policy: batch_config.policy().to_string(),
            refused: batch_config.refused.get().cloned(),
            explained: batch_config
                .costs
                .get()
                .map_or_else(Vec::new, |costs| batch_config.policy().explain(costs)),
            ..BatchMetrics::default()
        };
        for vp in &self.vps {
            let c = &vp.syscall_batch.counters;
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
            (None, _) if batch_config.is_custom() => "custom",
            (None, _) => "uring",
        }
        .to_owned();
        sum
    }
}

/// Whether the caller's read of `len` bytes at `at` begins where the last read of another
/// microprocess on this VP ended: see `shared` of [`call`]. Records the read. Returns false on a
/// foreign kernel thread.
#[inline]
pub fn follows_another(fd: RawFd, at: u64, len: usize) -> bool {
    let Some(carrier) = Carrier::current().filter(Carrier::is_running) else { return false };
    carrier.vp().syscall_batch.last_reads.note(fd, at, len, carrier.kernel_thread().current.get())
}
