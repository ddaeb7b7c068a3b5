//! Targets of waits that the runtime does not wrap: goals and aims under each event source.

use super::Goal::{AtMost, Within};
use super::{Aim, Figure, Goal, Pick, alone, full, of};

type Keys = &'static [(&'static str, &'static str)];

const BENCH: &str = "unwrapped";

const fn ours(metric: &'static str, keys: Keys, goal: Goal, aim: Goal) -> Figure {
    Figure {
        aim: Some(Aim { of: None, goal: aim }),
        ..alone(BENCH, Pick { keys, ..full(metric) }, goal)
    }
}

/// Both cores are busy: the clock must be as good as std's, and the aim is that of an idle machine.
const fn clock_beside_busy_cores(keys: Keys) -> Figure {
    let aim = Aim { of: Some(Pick { keys, ..full("clock_p99") }), goal: AtMost(1_000.0) };
    Figure {
        aim: Some(aim),
        ..alone(BENCH, Pick { keys, ..full("clock_p99_excess") }, AtMost(0.0))
    }
}

/// The figures under one source.
macro_rules! under {
    ($($source:tt),+) => {
        [
            ours("wall_ratio", &[("work", "worst"), $($source),+], AtMost(1.25), AtMost(1.15)),
            ours("cpu_ratio", &[("work", "worst"), $($source),+], AtMost(1.25), AtMost(1.15)),
            ours("wall", &[("work", "full"), $($source),+], AtMost(2.3), AtMost(2.05)),
            alone(
                BENCH,
                Pick { keys: &[("work", "long"), ("limit", "4096"), $($source),+], ..full("wall") },
                AtMost(4.7),
            ),
            ours("wall_ratio", &[("work", "long"), ("limit", "none"), $($source),+], AtMost(1.3), AtMost(1.1)),
            ours("clock_p99_excess", &[("work", "redis"), $($source),+], AtMost(3_000.0), AtMost(0.0)),
            clock_beside_busy_cores(&[("work", "pipe"), $($source),+]),
            ours("handoffs", &[("work", "worst"), $($source),+], AtMost(3.0), AtMost(1.0)),
            ours("changes", &[("work", "worst"), $($source),+], AtMost(10.0), AtMost(4.0)),
            ours("looks", &[("work", "worst"), $($source),+], AtMost(1_000.0), AtMost(100.0)),
        ]
    };
}

const OURS: &[[Figure; 10]] = &[
    under!(("events", "default")),
    under!(("events", "bpf"), ("way", "thread")),
    under!(("events", "bpf"), ("way", "switch")),
    under!(("events", "perf")),
    under!(("events", "watch")),
];

/// std relative to std, which shows the noise of the machine.
const fn control(metric: &'static str) -> Figure {
    let keys = &[("control", "again"), ("work", "worst")];
    alone(BENCH, Pick { keys, ..of("std", metric) }, Within(0.95, 1.05))
}

const CONTROL: &[Figure] = &[control("wall_ratio"), control("cpu_ratio")];

const fn interposed(keys: Keys, metric: &'static str, most: f64) -> Figure {
    alone(BENCH, Pick { keys, ..of("interposed", metric) }, AtMost(most))
}

/// As [`interposed`], with an aim relative to Kumihimo's own connections below the same crates.
const fn over_wrapped(
    keys: Keys,
    metric: &'static str,
    most: f64,
    over_wrapped: &'static str,
) -> Figure {
    let aim = Aim { of: Some(Pick { keys, ..of("interposed", over_wrapped) }), goal: AtMost(1.1) };
    Figure { aim: Some(aim), ..interposed(keys, metric, most) }
}

/// std's threads as microprocesses, by one line.
macro_rules! one_line {
    ($work:literal) => {
        [
            over_wrapped(&[("work", $work)], "cpu_ratio", 0.75, "cpu_over_wrapped"),
            over_wrapped(&[("work", $work)], "wall_ratio", 1.03, "wall_over_wrapped"),
            interposed(&[("work", $work)], "kernel_threads", 16.0),
        ]
    };
}

const INTERPOSED: &[[Figure; 3]] = &[one_line!("redis"), one_line!("http"), one_line!("ureq")];

/// All figures.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    CONTROL.iter().chain(OURS.iter().flatten()).chain(INTERPOSED.iter().flatten())
}
