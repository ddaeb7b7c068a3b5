//! Targets of unmodified programs under `kumi run`: relative to the plain program, and to the
//! program's own alternative to a thread per connection.

use super::Goal::{Any, AtMost};
use super::{Aim, Figure, Goal, Pick, full, of};

type Keys = &'static [(&'static str, &'static str)];

const BENCH: &str = "run";

const fn ours(metric: &'static str, keys: Keys) -> Pick {
    Pick { keys, queue: "-", ..full(metric) }
}

const fn figure(ours: Pick, over: Option<Pick>, goal: Goal, aim: Goal) -> Figure {
    Figure { bench: BENCH, ours, over, goal, aim: Some(Aim { of: None, goal: aim }), at: &[1] }
}

/// Relative to another runtime in the same cell.
const fn beside(
    metric: &'static str,
    keys: Keys,
    runtime: &'static str,
    goal: Goal,
    aim: f64,
) -> Figure {
    let over = Pick { keys, ..of(runtime, metric) };
    figure(ours(metric, keys), Some(over), goal, AtMost(aim))
}

const MARIADB: Keys = &[("program", "mariadb"), ("connections", "10000"), ("active", "100")];
const APACHE: Keys = &[("program", "apache"), ("connections", "8000")];
const JAVA: Keys = &[("program", "java"), ("connections", "2000")];
const PYTHON: Keys = &[("program", "python"), ("connections", "1000")];
const THREADS: Keys = &[("program", "threads"), ("threads", "100000")];
const FRESH: Keys = &[("program", "mariadb"), ("load", "fresh"), ("hogs", "6")];

pub const FIGURES: &[Figure] = &[
    beside("cpu", MARIADB, "std", AtMost(0.70), 0.60),
    beside("cpu", MARIADB, "pool", AtMost(1.25), 1.05),
    beside("p99", MARIADB, "std", Any, 1.0),
    beside("p50", FRESH, "std", AtMost(3.0), 1.0),
    beside("cpu", APACHE, "mpm-event", AtMost(0.7), 0.5),
    Figure { aim: None, ..figure(ours("dropped", APACHE), None, AtMost(0.0), Any) },
    beside("cpu", JAVA, "java-virtual", AtMost(1.2), 1.0),
    beside("rss", JAVA, "java-virtual", AtMost(3.0), 2.0),
    beside("cpu", PYTHON, "std", AtMost(0.65), 0.55),
    figure(ours("rss_each", THREADS), None, AtMost(16_384.0), AtMost(10_240.0)),
    figure(ours("created", THREADS), None, Any, AtMost(3.0)),
    beside("cpu", &[("program", "xz")], "std", AtMost(1.10), 1.02),
    beside("cpu", &[("program", "redis")], "std", AtMost(1.10), 1.02),
    beside("cpu", &[("program", "memcached")], "std", AtMost(1.10), 1.02),
    beside("lock_unlock", &[("program", "locks")], "std", AtMost(1.3), 1.1),
];
