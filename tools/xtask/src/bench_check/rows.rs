//! The twenty rows, by name. Name, program, keys and metric of a row never change, because samples
//! of two commits are comparable only if both measured the same.

#[cfg(test)]
mod tests;

use super::verdict::Better::{self, Higher, Lower};

/// A compared figure.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the row, as in `ROWS=`.
    pub name: &'static str,
    /// Program that measures the row, and possibly other rows.
    pub program: Program,
    /// The program's metric for this row.
    pub metric: &'static str,
    /// Unit of the metric.
    pub unit: &'static str,
    /// Direction in which the metric improves.
    pub better: Better,
}

/// A program that measures one or several rows in one run.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// One process that prints its samples and exits.
    Micro(&'static Micro),
    /// A TCP echo server and its load generator.
    Echo,
    /// A gate between two processes.
    Rpc {
        /// Number of microprocesses that call.
        callers: usize,
    },
    /// Requests while microprocesses block in the kernel.
    Stall,
    /// A mounted file system and its clients.
    Files,
    /// A key-value server and its load generator.
    Kv,
}

/// `kumi-lab bench-child BENCH KEYS --vps VPS`.
#[derive(Debug, PartialEq)]
pub struct Micro {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// `KEY=VALUE` arguments.
    pub keys: &'static [&'static str],
    /// Number of virtual processors and cores.
    pub vps: usize,
    /// The metric to read from its output.
    pub metric: &'static str,
    /// Direction in which the metric improves.
    pub better: Better,
    /// Total number of operations, for instructions per operation.
    pub operations: f64,
    /// Number of processes in a measurement. The best one counts.
    pub runs: usize,
    /// True if the benchmark needs kernel events.
    pub needs_source: bool,
}

/// A benchmark on one virtual processor.
const fn micro(
    bench: &'static str,
    keys: &'static [&'static str],
    metric: &'static str,
    operations: f64,
    runs: usize,
) -> Micro {
    Micro { bench, keys, vps: 1, metric, better: Lower, operations, runs, needs_source: false }
}

const YIELD: Micro = micro("yield", &[], "switch", 11e6, 1);
const FORK: Micro = micro("null-fork", &["part=sequential"], "sequential", 550e3, 4);
const BULK: Micro = micro("null-fork", &["part=bulk", "count=20000"], "bulk_warm", 40e3, 3);
const MESSAGE: Micro = micro("message", &[], "roundtrip", 1.1e6, 3);
const SIEVE: Micro = micro("sieve", &["part=primes700"], "primes700", 101.0 * 8_929.0, 4);
const SKYNET: Micro = micro("skynet", &["order=child"], "total", 2.0 * 1_111_111.0, 2);
const MUTEX: Micro = Micro {
    vps: 2,
    better: Higher,
    ..micro("mutex", &["rounds=20000"], "ops", 64.0 * 20_000.0, 4)
};
const PARKED: Micro = micro("parked", &["stack=min", "count=20000"], "rss", 20e3, 1);
const TIMERS: Micro = micro("timer", &["count=50000"], "cost", 150e3, 1);
const LATENCY: Micro = micro("latency", &["priority=high", "wakes=200"], "p50", 200.0, 4);
const EVENTS: Micro = Micro {
    needs_source: true,
    ..micro("events", &["part=wakes", "sticky=off", "sleeps=400"], "blocked", 800.0, 3)
};

const fn row(
    name: &'static str,
    program: Program,
    metric: &'static str,
    unit: &'static str,
    better: Better,
) -> Row {
    Row { name, program, metric, unit, better }
}

/// All rows in the order of reports.
pub const ROWS: [Row; 20] = [
    row("yield", Program::Micro(&YIELD), "switch", "ns", Lower),
    row("fork", Program::Micro(&FORK), "sequential", "ns", Lower),
    row("bulk", Program::Micro(&BULK), "bulk_warm", "ns", Lower),
    row("message", Program::Micro(&MESSAGE), "roundtrip", "ns", Lower),
    row("sieve", Program::Micro(&SIEVE), "primes700", "s", Lower),
    row("skynet", Program::Micro(&SKYNET), "total", "s", Lower),
    row("mutex", Program::Micro(&MUTEX), "ops", "1/s", Higher),
    row("echo-rate", Program::Echo, "rps", "1/s", Higher),
    row("echo-p99", Program::Echo, "p99", "us", Lower),
    row("echo-cpu", Program::Echo, "cpu", "us", Lower),
    row("parked-bytes", Program::Micro(&PARKED), "rss", "bytes", Lower),
    row("gate-null", Program::Rpc { callers: 1 }, "p50", "us", Lower),
    row("gate-64", Program::Rpc { callers: 64 }, "calls", "1/s", Higher),
    row("stall", Program::Stall, "p99", "us", Lower),
    row("events", Program::Micro(&EVENTS), "blocked", "us", Lower),
    row("files-stat", Program::Files, "stat", "1/s", Higher),
    row("files-pread", Program::Files, "pread", "1/s", Higher),
    row("kv", Program::Kv, "cpu", "us", Lower),
    row("timers", Program::Micro(&TIMERS), "cost", "ns", Lower),
    row("latency", Program::Micro(&LATENCY), "p50", "us", Lower),
];

/// Selects rows by name; all if none is named. The error for an unknown name lists the known ones.
pub fn choose(names: &[String]) -> Result<Vec<Row>, String> {
    if names.is_empty() {
        return Ok(ROWS.to_vec());
    }
    let mut chosen: Vec<Row> = Vec::new();
    for name in names {
        let row = ROWS.iter().find(|row| row.name == name).ok_or_else(|| {
            let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            format!("ROWS: {name:?} is not a row; the rows are {}", known.join(", "))
        })?;
        if chosen.iter().all(|other| other.name != row.name) {
            chosen.push(*row);
        }
    }
    Ok(chosen)
}

impl Program {
    /// Returns whether one run of either program provides the samples of both.
    pub fn is_same(self, other: Program) -> bool {
        match (self, other) {
            (Program::Micro(one), Program::Micro(other)) => one == other,
            (Program::Rpc { callers: one }, Program::Rpc { callers: other }) => one == other,
            (one, other) => std::mem::discriminant(&one) == std::mem::discriminant(&other),
        }
    }
}
