//! The requests and their latencies.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_bench_kit::work::spin;
use kumihimo_bench_kit::{Lateness, Usage, sample};

use crate::{BUSY, Plan, RATE, STALLERS, Totals, WORK_ROUNDS, now_ns};

/// Size of a request: its intended time (CLOCK_MONOTONIC in nanoseconds) and its number, both
/// little-endian.
pub const REQUEST: usize = 16;

/// Complete requests at the beginning of `bytes`, as (intended time, number).
pub fn requests_in(bytes: &[u8]) -> impl Iterator<Item = (u64, usize)> {
    bytes.chunks_exact(REQUEST).map(|one| {
        let word = |at: usize| u64::from_le_bytes(one[at..at + 8].try_into().expect("eight bytes"));
        (word(0), word(8) as usize)
    })
}

/// Latencies of all requests, and their number.
#[derive(Debug)]
pub struct Served {
    took: Vec<AtomicU64>,
    started: AtomicUsize,
    done: AtomicUsize,
    begin: Usage,
    begin_ns: u64,
}

impl Served {
    /// Creates a record for the requests of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Served {
        Served {
            // Written now, so that no request causes a page fault.
            took: (0..plan.count).map(|_| AtomicU64::new(u64::MAX)).collect(),
            started: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            begin: Usage::now(),
            begin_ns: now_ns(),
        }
    }

    /// Counts a request that was taken from its connection.
    pub fn start(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests that were taken and are not completed.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let done = self.done.load(Ordering::Acquire);
        self.started.load(Ordering::Relaxed).saturating_sub(done)
    }

    /// Serves a request: computes, and records the time since its intended time.
    pub fn serve(&self, intended: u64, number: usize) {
        black_box(spin(number as u64 + 1, WORK_ROUNDS));
        self.took[number].store(now_ns().saturating_sub(intended), Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Prints `capacity`: requests a second since the start.
    pub fn capacity(&self) {
        let seconds = (now_ns() - self.begin_ns) as f64 / 1e9;
        sample("capacity", self.done.load(Ordering::Acquire) as f64 / seconds, "1/s", "");
    }

    /// Prints the percentiles, with the totals of the stallers. `keys` are appended.
    ///
    /// # Panics
    /// If a request was lost.
    pub fn report(&self, plan: &Plan, totals: Totals, keys: &str) {
        let used = Usage::now().since(self.begin);
        assert_eq!(self.done.load(Ordering::Acquire), plan.count, "completed requests");
        let mut late = Lateness::default();
        for took in &self.took[plan.warm..] {
            late.record(Duration::from_nanos(took.load(Ordering::Relaxed)));
        }
        let stalls =
            if plan.kind == "fault" { totals.stalls.min(used.major_faults) } else { totals.stalls };
        // A looping staller counts as one stall.
        let rate =
            if plan.loops() { stalls as f64 } else { stalls as f64 / plan.time.as_secs_f64() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let reached = match plan.kind.as_str() {
            "none" => true,
            // Valid if all of them ran and the cores were busy.
            "loop" => {
                stalls == STALLERS as u64
                    && used.cpu.as_secs_f64() >= BUSY * cores * plan.time.as_secs_f64()
            }
            _ => rate >= RATE && totals.long > 0,
        };
        let keys = if plan.loops() {
            let priority = if plan.lower { "lower" } else { "equal" };
            format!("priority={priority} {keys} rounds:={}", totals.rounds)
        } else {
            keys.to_owned()
        };
        let keys = format!(
            "stall={} {keys} load:={:.0} stalls:={rate:.0} long:={} reached:={} blocked_s:={:.2} majflt:={} switches:={} cpu_s:={:.2}",
            plan.kind,
            plan.rate,
            totals.long,
            u8::from(reached),
            totals.blocked.as_secs_f64(),
            used.major_faults,
            used.voluntary_switches,
            used.cpu.as_secs_f64(),
        );
        for (metric, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            sample(metric, late.us(q), "us", &keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_requests_are_not_parsed() {
        let mut bytes = Vec::new();
        for n in [7u64, 8, 9, 10] {
            bytes.extend_from_slice(&n.to_le_bytes());
        }
        let seen: Vec<_> = requests_in(&bytes[..REQUEST * 2 - 1]).collect();
        assert_eq!(seen, [(7, 8)]);
        assert_eq!(requests_in(&bytes).count(), 2);
    }
}
