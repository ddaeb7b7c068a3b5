//! The snapshot as metric families in the sense of Prometheus.

use kumihimo_machine::handler::Metric;

use super::{Metrics, VpMetrics};
use crate::process::mode::Mode;

/// Name, help text and reader of a family.
type Of<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTERS: [Of<Metrics>; 19] = [
    ("spawned", "Microprocesses begun", |m| m.spawned),
    ("hand_offs", "Times that a VP continued under another kernel thread", |m| m.hand_offs),
    (
        "looks",
        "Times that a kernel thread that waits for a VP woke only to examine whether it can come",
        |m| m.looks,
    ),
    ("blocked", "Sleeps in the kernel that the event source reported", |m| m.blocked),
    ("unblocked", "Returns from such sleeps that a trap reported", |m| m.unblocked),
    ("missed", "Sleeps that the event source could not report", |m| m.missed),
    ("exhausted", "Times that no further kernel thread was available", |m| m.exhausted),
    ("preempted", "Times that a microprocess was made to give way", |m| m.preempted),
    ("stood_aside", "Times that a microprocess waited for its turn on its kernel thread", |m| {
        m.stood_aside
    }),
    ("misbehaved", "Times that a VP was prevented from scheduling", |m| m.misbehaved),
    ("overridden", "Times that the other VPs continued without such a VP", |m| m.overridden),
    ("changes", "Times that a microprocess became sticky, or ceased to be", |m| m.changes),
    ("sticky_sleeps", "Sleeps of sticky microprocesses outside of the runtime", |m| {
        m.sticky_sleeps
    }),
    ("blocking_inline", "Calls of blocking that stalled their VP", |m| m.blocking_inline),
    ("batches", "Batches of system calls", |m| m.batch.batches),
    ("batched_calls", "System calls in batches", |m| m.batch.calls),
    ("batch_entries", "Kernel entries of batches", |m| m.batch.entries),
    ("merged_calls", "System calls merged into another one", |m| m.batch.merged),
    ("anchor_reads", "Reads by the anchor", |m| m.anchor.reads),
];

const GAUGES: [Of<Metrics>; 9] = [
    ("living", "Living microprocesses", |m| m.living),
    ("kernel_threads", "Kernel threads of the runtime", |m| m.kernel_threads as u64),
    ("kernel_thread_limit", "Limit on kernel threads", |m| m.kernel_thread_limit as u64),
    ("spares", "Kernel threads that wait in the pool", |m| m.spares as u64),
    ("bound", "Microprocesses that are bound to a kernel thread without a VP", |m| m.bound as u64),
    ("sticky", "Microprocesses that keep a kernel thread and have no VP", |m| m.sticky as u64),
    ("one_to_one", "1 where microprocesses are kernel threads 1:1", |m| {
        u64::from(m.mode != Mode::Microprocesses)
    }),
    ("stacks", "Stack slots made", |m| m.stacks as u64),
    ("stack_bytes", "Address space of stack slots", |m| m.stack_bytes),
];

const OF_VPS: [Of<VpMetrics>; 5] = [
    ("vp_switches", "Switches between microprocesses", |v| v.switches),
    ("vp_spawned", "Microprocesses begun there", |v| v.spawned),
    ("vp_ended", "Microprocesses ended there", |v| v.ended),
    ("vp_sleeps", "Times that the VP went to sleep", |v| v.sleeps),
    ("vp_migrations", "Microprocesses taken from other VPs", |v| v.migrations),
];

fn metric(
    name: &str,
    help: &str,
    counter: bool,
    samples: Vec<(Vec<(String, String)>, f64)>,
) -> Metric {
    let name = if counter { format!("kumihimo_{name}_total") } else { format!("kumihimo_{name}") };
    Metric { name, help: help.into(), counter, samples }
}

impl Metrics {
    /// Returns all counters and gauges.
    pub(crate) fn families(&self) -> Vec<Metric> {
        let whole = |(name, help, of): &Of<Metrics>, counter| {
            metric(name, help, counter, vec![(vec![], of(self) as f64)])
        };
        let by_vp = |of: &dyn Fn(&VpMetrics) -> f64| {
            let label = |n: usize| vec![("vp".to_owned(), n.to_string())];
            self.vps.iter().enumerate().map(|(n, vp)| (label(n), of(vp))).collect::<Vec<_>>()
        };
        let mut all: Vec<Metric> = COUNTERS.iter().map(|of| whole(of, true)).collect();
        all.extend(GAUGES.iter().map(|of| whole(of, false)));
        all.extend(
            OF_VPS
                .iter()
                .map(|(name, help, of)| metric(name, help, true, by_vp(&|vp| of(vp) as f64))),
        );
        all.push(metric(
            "vp_idle_seconds",
            "Time without anything to run",
            true,
            by_vp(&|vp| vp.idle_ns as f64 / 1e9),
        ));
        all.push(metric(
            "vp_cpu_seconds",
            "CPU time, as booked",
            true,
            by_vp(&|vp| vp.cpu_ns as f64 / 1e9),
        ));
        all.push(metric(
            "vp_runnable",
            "Microprocesses queued",
            false,
            by_vp(&|vp| vp.runnable as f64),
        ));
        all
    }
}

#[cfg(test)]
mod tests;
