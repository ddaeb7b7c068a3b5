//! Metrics of gates.

use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_machine::handler::Metric;
use kumihimo_runtime::membership;

use crate::error::ErrorKind;

/// Links of clients that were cut for a quota.
static QUOTA_CUTS: AtomicU64 = AtomicU64::new(0);
/// Links of clients that were cut for a violation of the protocol.
static PROTOCOL_CUTS: AtomicU64 = AtomicU64::new(0);

/// Has the metrics of this process include those of gates.
pub(crate) fn install() {
    membership::add_gate_metrics(read);
}

/// Counts a link that is cut with an error of this kind.
pub(crate) fn count_cut(kind: ErrorKind) {
    let cuts = if kind == ErrorKind::Exhausted { &QUOTA_CUTS } else { &PROTOCOL_CUTS };
    cuts.fetch_add(1, Ordering::Relaxed);
}

fn read() -> Vec<Metric> {
    let sample = |reason: &str, cuts: &AtomicU64| {
        (vec![("reason".into(), reason.into())], cuts.load(Ordering::Relaxed) as f64)
    };
    vec![Metric {
        name: "kumihimo_gate_clients_cut_total".into(),
        help: "Clients of gates whose link was cut for a quota or a violation of the protocol."
            .into(),
        counter: true,
        samples: vec![sample("quota", &QUOTA_CUTS), sample("protocol", &PROTOCOL_CUTS)],
    }]
}
