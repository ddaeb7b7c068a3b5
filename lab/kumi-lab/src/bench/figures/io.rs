//! Targets of system calls: in batches, and over connections.

use super::Goal::{AtLeast, AtMost};
use super::{Figure, Goal, Pick, alone, full, of, ratio};

type Keys = &'static [(&'static str, &'static str)];

/// Keys of one cell of `echo`: Kumihimo's by batching, the rivals', and the floor's.
struct Cell {
    adaptive: Keys,
    forced: Keys,
    plain: Keys,
    rival: Keys,
    floor: Keys,
}

macro_rules! cell {
    ($connections:literal) => {
        Cell {
            adaptive: &[("batch", "adaptive"), ("connections", $connections)],
            forced: &[("batch", "forced"), ("connections", $connections)],
            plain: &[("batch", "plain"), ("connections", $connections)],
            rival: &[("connections", $connections)],
            floor: &[("calls", "better"), ("connections", $connections)],
        }
    };
}

const ONE: Cell = cell!("1");
const TEN: Cell = cell!("10");
const THOUSAND: Cell = cell!("1000");
const MYRIAD: Cell = cell!("10000");

/// Kumihimo with adaptive batches, relative to a rival.
const fn rival(cell: &Cell, metric: &'static str, runtime: &'static str, goal: Goal) -> Figure {
    ratio(
        "echo",
        Pick { keys: cell.adaptive, ..full(metric) },
        Pick { keys: cell.rival, ..of(runtime, metric) },
        goal,
    )
}

/// Kumihimo with adaptive batches, relative to the floor.
const fn floor(cell: &Cell, metric: &'static str, goal: Goal) -> Figure {
    ratio(
        "echo",
        Pick { keys: cell.adaptive, ..full(metric) },
        Pick { keys: cell.floor, ..of("floor", metric) },
        goal,
    )
}

/// Adaptive batches relative to forced or no batches.
const fn adaptive(cell: &Cell, other: Keys) -> Figure {
    ratio(
        "echo",
        Pick { keys: cell.adaptive, ..full("rps") },
        Pick { keys: other, ..full("rps") },
        AtLeast(0.97),
    )
}

const fn kv(metric: &'static str, keys: Keys, goal: Goal) -> Figure {
    ratio("kv", Pick { keys, ..full(metric) }, Pick { keys, ..of("redis", metric) }, goal)
}

macro_rules! kv {
    ($metric:literal, $command:literal, $connections:literal, $pipeline:literal, $goal:expr) => {
        kv(
            $metric,
            &[("command", $command), ("connections", $connections), ("pipeline", $pipeline)],
            $goal,
        )
    };
}

const fn batch(metric: &'static str, keys: Keys, most: f64) -> Figure {
    Figure { at: &[1], ..alone("syscall-batch", Pick { keys, ..full(metric) }, AtMost(most)) }
}

macro_rules! batch {
    ($metric:literal, $op:literal, $most:literal) => {
        batch($metric, &[("op", $op), ("n", "16"), ("batch", "fixed")], $most)
    };
}

const fn transaction(metric: &'static str, keys: Keys, goal: Goal) -> Figure {
    Figure { at: &[1], ..alone("transaction", Pick { keys, ..full(metric) }, goal) }
}

const HTTP: Keys = &[("connections", "5000")];

/// Kumihimo's server of HTTP relative to one with the same handler.
const fn http(metric: &'static str, runtime: &'static str, goal: Goal) -> Figure {
    ratio(
        "http",
        Pick { keys: HTTP, ..full(metric) },
        Pick { keys: HTTP, ..of(runtime, metric) },
        goal,
    )
}

pub const FIGURES: &[Figure] = &[
    batch!("ratio", "nop", 0.55),
    batch!("ratio", "recv", 0.97),
    batch!("ratio", "send", 0.97),
    batch!("ratio", "pread", 1.05),
    batch!("merged", "send", 0.3),
    batch!("merged", "pread", 0.6),
    batch("adaptive_worst", &[("op", "nop")], 1.05),
    batch("adaptive_worst", &[("op", "recv")], 1.05),
    batch("adaptive_worst", &[("op", "send")], 1.05),
    batch("adaptive_worst", &[("op", "pread")], 1.05),
    batch("adaptive_worst", &[("op", "statx")], 1.05),
    transaction("rate_of_best", &[("mix", "paper")], AtLeast(0.95)),
    transaction("rate_of_best", &[("mix", "reads")], AtLeast(0.95)),
    transaction("rate_of_best", &[("mix", "bursty")], AtLeast(0.95)),
    transaction("p99_of_lowest", &[("mix", "paper")], AtMost(1.05)),
    transaction("p99_of_lowest", &[("mix", "reads")], AtMost(1.05)),
    rival(&TEN, "rps", "tokio", AtLeast(1.05)),
    rival(&THOUSAND, "rps", "tokio", AtLeast(1.1)),
    rival(&MYRIAD, "rps", "tokio", AtLeast(1.1)),
    rival(&TEN, "rps", "go", AtLeast(1.25)),
    rival(&THOUSAND, "rps", "go", AtLeast(1.4)),
    rival(&MYRIAD, "rps", "go", AtLeast(1.25)),
    rival(&THOUSAND, "cpu", "tokio", AtMost(0.9)),
    floor(&THOUSAND, "cpu", AtMost(1.15)),
    rival(&MYRIAD, "cpu", "tokio", AtMost(0.9)),
    floor(&MYRIAD, "cpu", AtMost(1.15)),
    alone("echo", Pick { keys: THOUSAND.forced, ..full("entries_per_request") }, AtMost(0.25)),
    adaptive(&ONE, ONE.forced),
    adaptive(&ONE, ONE.plain),
    adaptive(&TEN, TEN.forced),
    adaptive(&TEN, TEN.plain),
    adaptive(&THOUSAND, THOUSAND.forced),
    adaptive(&THOUSAND, THOUSAND.plain),
    adaptive(&MYRIAD, MYRIAD.forced),
    adaptive(&MYRIAD, MYRIAD.plain),
    rival(&TEN, "p99", "tokio", AtMost(1.0)),
    floor(&TEN, "p99", AtMost(1.0)),
    rival(&TEN, "p999", "tokio", AtMost(1.0)),
    floor(&TEN, "p999", AtMost(1.0)),
    rival(&THOUSAND, "p99", "tokio", AtMost(1.0)),
    floor(&THOUSAND, "p99", AtMost(1.0)),
    rival(&THOUSAND, "p999", "tokio", AtMost(1.0)),
    floor(&THOUSAND, "p999", AtMost(1.0)),
    rival(&MYRIAD, "p99", "tokio", AtMost(1.0)),
    floor(&MYRIAD, "p99", AtMost(1.0)),
    rival(&MYRIAD, "p999", "tokio", AtMost(1.0)),
    floor(&MYRIAD, "p999", AtMost(1.0)),
    rival(&ONE, "p50", "std", AtMost(1.05)),
    kv!("rps", "set", "50", "16", AtLeast(1.3)),
    kv!("rps", "set", "50", "1", AtLeast(1.0)),
    kv!("cpu", "set", "50", "1", AtMost(0.9)),
    kv!("rps", "set", "1000", "1", AtLeast(1.0)),
    kv!("cpu", "set", "1000", "1", AtMost(0.9)),
    kv!("rps", "get", "50", "16", AtLeast(1.3)),
    kv!("rps", "get", "50", "1", AtLeast(1.0)),
    kv!("cpu", "get", "50", "1", AtMost(0.9)),
    kv!("rps", "get", "1000", "1", AtLeast(1.0)),
    kv!("cpu", "get", "1000", "1", AtMost(0.9)),
    http("cpu", "tokio", AtMost(1.06)),
    http("cpu", "go", AtMost(0.6)),
    alone("http", Pick { keys: HTTP, ..full("rss") }, AtMost(55e6)),
    alone("priority-io", full("high_p99_ratio"), AtMost(0.2)),
    alone("priority-io", full("low_rps_ratio"), AtLeast(0.95)),
    alone(
        "connections",
        Pick { keys: &[("connections", "10000")], ..full("rss") },
        AtMost(16_384.0),
    ),
];
