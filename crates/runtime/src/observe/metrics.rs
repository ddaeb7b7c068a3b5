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

/// A snapshot of the running runtime's counters. Counters of VPs that run meanwhile may be a moment
/// old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Living microprocesses.
    pub living: u64,
    /// Microprocesses begun since the start.
    pub spawned: u64,
    /// Kernel threads of the runtime, and those of them that wait in the pool.
    pub kernel_threads: usize,
    /// See `kernel_threads`.
    pub spares: usize,
    /// The limit on kernel threads.
    pub kernel_thread_limit: usize,
    /// The setting that imposes `kernel_thread_limit`.
    pub kernel_thread_limit_by: String,
    /// VPs that went on under another kernel thread.
    pub hand_offs: u64,
    /// Times that a kernel thread that waits for a VP woke only to examine whether it can come.
    pub looks: u64,
    /// Where events come from: `bpf`, `perf`, `watch` or `off`.
    pub events: &'static str,
    /// The event source of kernel threads to which the kernel refuses `events`, as after privileges
    /// were dropped.
    pub events_fallback: Option<&'static str>,
    /// Microprocesses that are bound to a kernel thread without a VP: blocked in the kernel, or
    /// just back.
    pub bound: usize,
    /// Times that a microprocess slept in the kernel and its VP was given up, as counted by the
    /// event source (`bpf`).
    pub blocked: u64,
    /// Returns from such sleeps that were told by a trap (`bpf`).
    pub unblocked: u64,
    /// Sleeps that the event source could not tell.
    pub missed: u64,
    /// Times that a further kernel thread was wanted and not to be had.
    pub exhausted: u64,
    /// How a microprocess is interrupted that does not enter the runtime: `clock`, `signal=N` or
    /// `off`.
    pub preemption: String,
    /// Times that a microprocess was made to give way, or to look whether it should, in the middle
    /// of its own code.
    pub preempted: u64,
    /// Times that a microprocess could not be switched away from (in the C library, say), and
    /// waited on its kernel thread until it had its turn again.
    pub stood_aside: u64,
    /// Times that its kernel thread was asked to be interrupted for that.
    pub rung: u64,
    /// Times that a virtual processor was kept from its part, and that the others went on without
    /// it: see [`Builder::on_misbehaviour`](crate::api::runtime::Builder::on_misbehaviour).
    pub misbehaved: u64,
    /// See `misbehaved`.
    pub overridden: u64,
    /// Microprocesses that keep a kernel thread and have no VP, since they block often in calls
    /// that the runtime does not know: see
    /// [`Builder::sticky`](crate::api::runtime::Builder::sticky).
    pub sticky: usize,
    /// Times that one became sticky, or ceased to be.
    pub changes: u64,
    /// Sleeps of those that are sticky, elsewhere than in the runtime, as of their last waits in
    /// it.
    pub sticky_sleeps: u64,
    /// Calls of `blocking` that held their VP up because no further kernel thread was to be had.
    pub blocking_inline: u64,
    /// Stack slots made in this process, in use or pooled.
    pub stacks: usize,
    /// Their address space in bytes.
    pub stack_bytes: u64,
    /// Queue design and policy in use.
    pub queue: &'static str,
    /// See `queue`.
    pub policy: String,
    /// How microprocesses get their thread-local storage: `clone`, `donor` or `kernel` (1:1).
    pub tls: &'static str,
    /// What microprocesses are here.
    pub mode: Mode,
    /// Records of the trace that found no room so far; `None`: nothing is traced.
    pub trace_lost: Option<u64>,
    /// System calls that entered the kernel together.
    pub batch: BatchMetrics,
    /// Reads that go to the disk in any case.
    pub anchor: AnchorMetrics,
    /// One entry per VP.
    pub vps: Vec<VpMetrics>,
}

/// Counters of one VP since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VpMetrics {
    /// Context switches.
    pub switches: u64,
    /// Microprocesses begun here.
    pub spawned: u64,
    /// Microprocesses ended here.
    pub ended: u64,
    /// Nanoseconds without work.
    pub idle_ns: u64,
    /// Times that it slept in the kernel.
    pub sleeps: u64,
    /// Nanoseconds of CPU time of the kernel threads that carried it, as booked: a few milliseconds
    /// may be missing.
    pub cpu_ns: u64,
    /// Runnable microprocesses as last published.
    pub runnable: usize,
    /// Items that came from other VPs' queues, not counting wake-ups.
    pub migrations: u64,
    /// Batches given away through the Waiver Queue.
    pub waiver_passes: u64,
    /// Items offered to idle VPs.
    pub offers: u64,
    /// Times a queue's lock was found taken (`locked`).
    pub lock_waits: u64,
    /// Times a queue's lock was taken (`locked`).
    pub locks: u64,
    /// Lost races for an item (`steal`).
    pub steal_retries: u64,
}

/// A snapshot of the running runtime. `None` if none runs.
pub fn metrics() -> Option<Metrics> {
    instance::visit(|instance| instance.map(|i| i.metrics()))
}

impl Metrics {
    /// The event sources in words: `bpf`, or `bpf, then perf`.
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
                    migrations: q.migrations,
                    waiver_passes: q.waiver_passes,
                    offers: q.offers,
                    lock_waits: q.lock_waits,
                    locks: q.locks,
                    steal_retries: q.steal_retries,
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
        }
    }
}
