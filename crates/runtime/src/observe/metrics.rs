//! A snapshot of the running runtime's counters.

mod families;

use std::sync::atomic::Ordering;

use kumihimo_arch::tls;
use kumihimo_events::source::Kind as Events;

use crate::memory::pool;
use crate::process::board;
use crate::process::mode::{Mode, mode};
use crate::scheduler::instance::{self, Instance};
use crate::syscall::direct_read::AnchorMetrics;
use crate::wait::syscall_batch::BatchMetrics;

/// A snapshot of the running runtime's counters. The counters of VPs that run meanwhile may be
/// slightly out of date.
///
/// # Examples
///
/// ```
/// use kumihimo::{runtime, thread};
///
/// let metrics = runtime::run(|| {
///     thread::spawn(|| ()).join().unwrap();
///     runtime::metrics().unwrap()
/// })?;
/// // The closure itself runs in a microprocess, too.
/// assert_eq!(metrics.spawned, 2);
/// assert!(metrics.living >= 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Number of living microprocesses.
    pub living: u64,
    /// Number of microprocesses spawned since the start.
    pub spawned: u64,
    /// Number of kernel threads of the runtime, and number of these that wait in the pool.
    pub kernel_threads: usize,
    /// See `kernel_threads`.
    pub spares: usize,
    /// The limit on kernel threads.
    pub kernel_thread_limit: usize,
    /// The setting that imposes `kernel_thread_limit`.
    pub kernel_thread_limit_by: String,
    /// Number of times that a VP continued under another kernel thread.
    pub hand_offs: u64,
    /// Number of times that a kernel thread that waits for a VP woke only to examine whether it can
    /// come.
    pub looks: u64,
    /// Event source: `bpf`, `perf`, `watch` or `off`.
    pub events: &'static str,
    /// Event source of the kernel threads for which the kernel refuses `events`, for example after
    /// privileges were dropped.
    pub events_fallback: Option<&'static str>,
    /// Number of microprocesses that are bound to a kernel thread without a VP: blocked in the
    /// kernel, or just back.
    pub bound: usize,
    /// Number of times that a microprocess slept in the kernel and its VP was handed over, as
    /// counted by the event source (`bpf`).
    pub blocked: u64,
    /// Number of returns from such sleeps that a trap reported (`bpf`).
    pub unblocked: u64,
    /// Number of sleeps that the event source could not report.
    pub missed: u64,
    /// Number of times that a further kernel thread was required and unavailable.
    pub exhausted: u64,
    /// Means of interrupting a microprocess that does not enter the runtime: `clock`, `signal=N` or
    /// `off`.
    pub preemption: String,
    /// Number of times that a microprocess was interrupted in its own code, to give way or to check
    /// whether it should.
    pub preempted: u64,
    /// Number of times that a microprocess could not be switched away from (for example in the C
    /// library), and waited on its kernel thread until it was scheduled again.
    pub stood_aside: u64,
    /// Number of times that an interruption of a kernel thread was requested for that.
    pub rung: u64,
    /// Number of times that a VP was prevented from scheduling, and that the other VPs continued
    /// without it: see [`Builder::on_misbehaviour`](crate::api::runtime::Builder::on_misbehaviour).
    pub misbehaved: u64,
    /// See `misbehaved`.
    pub overridden: u64,
    /// Number of microprocesses that keep a kernel thread and have no VP, because they block often
    /// in calls unknown to the runtime: see
    /// [`Builder::sticky`](crate::api::runtime::Builder::sticky).
    pub sticky: usize,
    /// Number of times that a microprocess became sticky, or ceased to be.
    pub changes: u64,
    /// Number of sleeps of sticky microprocesses outside of the runtime, up to their last waits in
    /// it.
    pub sticky_sleeps: u64,
    /// Number of calls of `blocking` that stalled their VP because no further kernel thread was
    /// available.
    pub blocking_inline: u64,
    /// Number of stack slots made in this process, in use or pooled.
    pub stacks: usize,
    /// Address space of these slots in bytes.
    pub stack_bytes: u64,
    /// Queue design and policy in use.
    pub queue: &'static str,
    /// See `queue`.
    pub policy: String,
    /// Source of thread-local storage for microprocesses: `clone`, `donor` or `kernel` (1:1).
    pub tls: &'static str,
    /// Mode of this process.
    pub mode: Mode,
    /// Number of trace records lost so far because the buffers were full; `None` without a trace.
    pub trace_lost: Option<u64>,
    /// Batched system calls.
    pub batch: BatchMetrics,
    /// Direct reads.
    pub anchor: AnchorMetrics,
    /// One entry per VP, including the retired ones.
    pub vps: Vec<VpMetrics>,
    /// Number of virtual processors in use: it follows the CPU quota and the CPU affinity. The
    /// others are retired.
    pub open_vps: usize,
}

/// Counters of one VP since the start.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Runtime, VpMetrics, metrics};
/// use kumihimo::thread;
///
/// let runtime = Runtime::builder().vps(1).build()?;
/// let metrics = runtime.run(|| {
///     thread::spawn(|| ()).join().unwrap();
///     metrics().unwrap()
/// });
/// let vp: &VpMetrics = &metrics.vps[0];
/// assert_eq!((vp.spawned, vp.ended), (1, 1));
/// assert!(vp.switches >= 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VpMetrics {
    /// Number of context switches.
    pub switches: u64,
    /// Number of microprocesses spawned on the VP.
    pub spawned: u64,
    /// Number of microprocesses ended on the VP.
    pub ended: u64,
    /// Time without work, in nanoseconds.
    pub idle_ns: u64,
    /// Number of times that the VP slept in the kernel.
    pub sleeps: u64,
    /// CPU time of the kernel threads that carried the VP, as booked, in nanoseconds. A few
    /// milliseconds may be missing.
    pub cpu_ns: u64,
    /// Whether the VP is retired and no kernel thread carries it.
    pub is_parked: bool,
    /// Number of runnable microprocesses, as last published.
    pub runnable: usize,
    /// Number of microprocesses taken from other VPs' queues, not counting wake-ups.
    pub migrations: u64,
    /// Number of batches given away through the Waiver Queue.
    pub waiver_passes: u64,
    /// Number of microprocesses offered to idle VPs.
    pub offers: u64,
    /// Number of times that a queue's lock was found taken (`locked`).
    pub lock_waits: u64,
    /// Number of times that a queue's lock was taken (`locked`).
    pub locks: u64,
    /// Number of lost races for an item (`steal`).
    pub steal_retries: u64,
    /// Times in nanoseconds between wake-up and run, of the wake-ups that were timed (about one of
    /// 100 us): entry n is the number of times below 2^n that are in no earlier entry.
    pub wake_latency: [u64; 32],
    /// Numbers of runnable microprocesses at the samples (one of about 5 ms while any VP runs), by
    /// powers of two as in `wake_latency`.
    pub queue_lengths: [u64; 32],
}

/// Returns a snapshot of the running runtime's counters, or `None` if none runs.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime;
///
/// assert!(runtime::metrics().is_none(), "no runtime runs");
/// let metrics = runtime::run(runtime::metrics)?.expect("a runtime runs");
/// assert_eq!(metrics.policy, "round-robin");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn metrics() -> Option<Metrics> {
    instance::visit(|instance| instance.map(|i| i.metrics()))
}

impl Metrics {
    /// Returns the event sources as text: `bpf`, or `bpf, then perf`.
    pub(crate) fn sources(&self) -> String {
        let then = self.events_fallback.map_or_else(String::new, |other| format!(", then {other}"));
        format!("{}{then}", self.events)
    }
}

impl Instance {
    fn metrics(&self) -> Metrics {
        let kernel = self.kernel.counts();
        let (stacks, stack_bytes) = pool::totals();
        let vps: Vec<VpMetrics> = self
            .vps
            .iter()
            .map(|vp| {
                let c = &vp.counters;
                let q = self.queues.stats(vp.index);
                VpMetrics {
                    switches: c.switches.load(Ordering::Relaxed),
                    spawned: c.spawned.load(Ordering::Relaxed),
                    ended: c.ended.load(Ordering::Relaxed),
                    idle_ns: c.idle_ns.load(Ordering::Relaxed),
                    sleeps: c.sleeps.load(Ordering::Relaxed),
                    cpu_ns: board::booked(vp.index),
                    runnable: self.queues.shown(vp.index).0,
                    is_parked: vp.idle.is_parked(),
                    migrations: q.migrations,
                    waiver_passes: q.waiver_passes,
                    offers: q.offers,
                    lock_waits: q.lock_waits,
                    locks: q.locks,
                    steal_retries: q.steal_retries,
                    wake_latency: vp.wake_latency.read(),
                    queue_lengths: vp.queue_lengths.read(),
                }
            })
            .collect();
        Metrics {
            living: self.living(),
            spawned: self.spawned_outside.load(Ordering::Relaxed)
                + vps.iter().map(|v| v.spawned).sum::<u64>(),
            kernel_threads: kernel.threads,
            spares: kernel.waiting,
            kernel_thread_limit: self.kernel.limit().threads,
            kernel_thread_limit_by: self.kernel.limit().source.to_string(),
            hand_offs: kernel.hand_offs,
            looks: kernel.looks,
            events: self.kernel.source().name(),
            events_fallback: self.kernel.fallback().map(Events::name),
            bound: kernel.bound,
            preemption: self.kernel.preemption().to_string(),
            preempted: self.injected.load(Ordering::Relaxed),
            stood_aside: self.stood_aside.load(Ordering::Relaxed),
            rung: kernel.rung,
            misbehaved: kernel.misbehaved,
            overridden: kernel.overridden,
            blocked: kernel.blocked,
            unblocked: kernel.unblocked,
            missed: kernel.missed,
            exhausted: kernel.exhausted,
            sticky: self.sticky.now.load(Ordering::Relaxed),
            changes: self.sticky.changes.load(Ordering::Relaxed),
            sticky_sleeps: self.sticky.sleeps.load(Ordering::Relaxed),
            blocking_inline: self.blocking_inline.load(Ordering::Relaxed),
            stacks,
            stack_bytes,
            queue: self.queues.design().name(),
            policy: self.placer.name().to_owned(),
            tls: match tls::get().kind() {
                tls::Kind::Clone => "clone",
                tls::Kind::Donor => "donor",
                tls::Kind::Kernel => "kernel",
            },
            mode: mode(),
            batch: self.batch_metrics(),
            anchor: self.direct_read.metrics(),
            trace_lost: self.trace.as_ref().map(|session| session.lost()),
            vps,
            open_vps: self.open(),
        }
    }
}
