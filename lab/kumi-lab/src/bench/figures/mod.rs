//! Targets, and whether they were reached.
//!
//! One module for each group of benchmarks lists figures: the row and its keys, the row for
//! comparison, and the goal. [`judge`] looks them up among a benchmark's rows.
//!
//! Input are the rows of `report`, output are verdicts. The module starts nothing and changes no
//! row.

mod control;
mod gates;
mod hostile;
mod io;
mod observe;
mod pages;
mod remote;
mod servers;
mod unmodified;
mod unwrapped;

use super::plan::Options;
use super::report::row::Row;
use super::report::stats::summary;

/// Selects a row of a benchmark.
#[derive(Clone, Copy, Debug)]
struct Pick {
    metric: &'static str,
    runtime: &'static str,
    variant: &'static str,
    /// Empty selects this run's default queue (any, for rivals).
    queue: &'static str,
    keys: &'static [(&'static str, &'static str)],
    /// 0 selects the number of VPs for which the figure is judged.
    vps: usize,
    /// A note to read instead of the median.
    note: &'static str,
}

/// Benchmarks whose ratios are medians over rounds, each round compared with itself: their
/// contenders are alive at the same time. In other benchmarks, a ratio is that of the medians.
const PAIRED: [&str; 5] = ["echo", "http", "kv", "hostile", "run"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// A range that includes both bounds.
    Within(f64, f64),
    /// Any measured value: only the aim is a bound.
    Any,
}

/// An aim beyond the required goal.
#[derive(Clone, Copy, Debug)]
struct Aim {
    /// The measured row; `None` for the figure's own.
    of: Option<Pick>,
    goal: Goal,
}

/// A figure: a row of Kumihimo alone, or relative to another row of the same run.
#[derive(Clone, Copy, Debug)]
struct Figure {
    bench: &'static str,
    ours: Pick,
    over: Option<Pick>,
    goal: Goal,
    aim: Option<Aim>,
    /// Numbers of VPs; empty for each number that was run.
    at: &'static [usize],
}

const fn full(metric: &'static str) -> Pick {
    Pick { metric, runtime: "kumihimo", variant: "full", queue: "", keys: &[], vps: 0, note: "" }
}

const fn lean(metric: &'static str) -> Pick {
    Pick { variant: "lean", ..full(metric) }
}

const fn of(runtime: &'static str, metric: &'static str) -> Pick {
    Pick { runtime, variant: "-", ..full(metric) }
}

const fn ratio(bench: &'static str, ours: Pick, over: Pick, goal: Goal) -> Figure {
    Figure { bench, ours, over: Some(over), goal, aim: None, at: &[] }
}

const fn alone(bench: &'static str, ours: Pick, goal: Goal) -> Figure {
    Figure { bench, ours, over: None, goal, aim: None, at: &[] }
}

const fn design(queue: &'static str, work: &'static [(&'static str, &'static str)]) -> Pick {
    Pick { queue, keys: work, ..full("time") }
}

const YIELD: &[(&str, &str)] = &[("work", "yield")];
const NULL_FORK: &[(&str, &str)] = &[("work", "null-fork")];
const CHILD: &[(&str, &str)] = &[("order", "child")];
const FULL_MIN: &[(&str, &str)] = &[("stack", "min"), ("count", "100000")];
const LEAN_MIN: &[(&str, &str)] = &[("stack", "min"), ("count", "1000000")];

const WORST_BPF: &[(&str, &str)] = &[("stall", "worst"), ("events", "bpf")];
const WORST_PERF: &[(&str, &str)] = &[("stall", "worst"), ("events", "perf")];
const LOWER_BPF: &[(&str, &str)] = &[("stall", "loop"), ("priority", "lower"), ("events", "bpf")];
const NONE_BPF: &[(&str, &str)] = &[("stall", "none"), ("events", "bpf")];
const NONE: &[(&str, &str)] = &[("stall", "none")];
const BPF: &[(&str, &str)] = &[("events", "bpf")];
/// A hand-off at each sleep.
const TOLD: &[(&str, &str)] = &[("events", "bpf"), ("sticky", "off")];
/// The default: frequent sleeps cause no events.
const STICKY: &[(&str, &str)] = &[("events", "bpf"), ("sticky", "on")];
const CACHED: &[(&str, &str)] = &[("part", "cached")];
const UNCACHED: &[(&str, &str)] = &[("part", "uncached")];

const PREEMPTED: Pick = Pick { vps: 1, keys: BPF, ..full("preempted") };

/// Delay until a microprocess that becomes ready runs, for every cause: at most three times that of
/// a preemption on one core.
const fn ready(keys: &'static [(&'static str, &'static str)]) -> Figure {
    ratio("priority-local", Pick { keys, ..full("ready_p99") }, PREEMPTED, Goal::AtMost(3.0))
}

const fn idle_cost(keys: &'static [(&'static str, &'static str)]) -> Figure {
    alone("events", Pick { keys, ..full("idle_cost") }, Goal::AtMost(1.03))
}

const fn traced(keys: &'static [(&'static str, &'static str)]) -> Figure {
    alone("trace", Pick { keys, ..full("overhead") }, Goal::AtMost(1.05))
}

const fn lost(keys: &'static [(&'static str, &'static str)]) -> Figure {
    alone("trace", Pick { keys, note: "lost", ..full("overhead") }, Goal::AtMost(0.0))
}

const fn blocked(
    blocked: &'static [(&'static str, &'static str)],
    metric: &'static str,
    most: f64,
) -> Figure {
    alone("kernel-threads", Pick { keys: blocked, ..full(metric) }, Goal::AtMost(most))
}

const FIGURES: &[Figure] = {
    use Goal::{AtLeast, AtMost};
    &[
        ratio("yield", full("switch"), Pick { runtime: "floor", ..full("switch") }, AtMost(2.0)),
        ratio("yield", full("switch"), of("go", "switch"), AtMost(0.26)),
        ratio("null-fork", full("sequential"), of("go", "sequential"), AtMost(0.4)),
        ratio("null-fork", full("sequential"), of("tokio", "sequential"), AtMost(0.55)),
        ratio("null-fork", full("sequential"), of("std", "sequential"), AtMost(1.0 / 4.2)),
        ratio(
            "null-fork",
            full("sequential"),
            of("process-fork", "sequential"),
            AtMost(1.0 / 38.0),
        ),
        ratio("null-fork", full("bulk_warm"), of("go", "bulk_warm"), AtMost(0.5)),
        ratio("null-fork", full("bulk_cold"), of("std", "bulk_cold"), AtMost(0.35)),
        alone("null-fork", Pick { note: "alive_max", ..full("bulk_warm") }, AtLeast(100_000.0)),
        alone("null-fork", Pick { note: "alive_max", ..full("bulk_cold") }, AtLeast(100_000.0)),
        ratio("message", full("roundtrip"), of("go", "roundtrip"), AtMost(0.4)),
        ratio("message", full("roundtrip"), of("std", "roundtrip"), AtMost(0.02)),
        ratio("sieve", full("primes700"), of("go", "primes700"), AtMost(0.35)),
        ratio("sieve", full("primes700"), of("tokio", "primes700"), AtMost(0.5)),
        ratio("sieve", full("primes2000"), of("go", "primes2000"), AtMost(0.35)),
        ratio("sieve", full("primes2000"), of("tokio", "primes2000"), AtMost(0.5)),
        Figure {
            at: &[2],
            ..ratio("sieve", full("primes700"), Pick { vps: 1, ..full("primes700") }, AtMost(0.999))
        },
        Figure {
            at: &[2],
            ..ratio(
                "sieve",
                full("primes2000"),
                Pick { vps: 1, ..full("primes2000") },
                AtMost(0.999),
            )
        },
        ratio("skynet", Pick { keys: CHILD, ..full("total") }, of("tokio", "total"), AtMost(0.85)),
        ratio("skynet", Pick { keys: CHILD, ..lean("total") }, of("tokio", "total"), AtMost(0.26)),
        alone("parked", Pick { keys: FULL_MIN, ..full("rss") }, AtMost(9_216.0)),
        alone("parked", Pick { keys: LEAN_MIN, ..lean("rss") }, AtMost(4_700.0)),
        alone("parked", Pick { keys: FULL_MIN, ..full("kernel") }, AtMost(200.0)),
        alone("parked", Pick { keys: LEAN_MIN, ..lean("kernel") }, AtMost(200.0)),
        Figure { at: &[2], ..ratio("mutex", full("ops"), of("go", "ops"), AtLeast(1.5)) },
        ratio("timer", full("lateness_p50"), of("go", "lateness_p50"), AtMost(1.0)),
        ratio("timer", full("lateness_p99"), of("go", "lateness_p99"), AtMost(1.0)),
        ratio("timer", full("cost"), of("go", "cost"), AtMost(1.0)),
        alone("spread", Pick { queue: "-", ..full("locked_over_ring") }, AtLeast(4.3)),
        ratio("queues", design("locked", YIELD), design("steal", YIELD), AtMost(1.15)),
        ratio("queues", design("locked", NULL_FORK), design("steal", NULL_FORK), AtMost(1.15)),
        alone("stall", Pick { keys: WORST_BPF, ..full("p99_ratio") }, AtMost(1.5)),
        alone("stall", Pick { keys: WORST_PERF, ..full("p99_ratio") }, AtMost(2.5)),
        alone("stall", Pick { keys: WORST_BPF, ..full("p999_ratio") }, AtMost(2.0)),
        alone("stall", Pick { keys: LOWER_BPF, ..full("p99_ratio") }, AtMost(1.5)),
        ratio(
            "files",
            Pick { keys: CACHED, ..full("reads") },
            Pick { keys: CACHED, ..of("std", "reads") },
            AtLeast(0.9),
        ),
        ratio(
            "files",
            Pick { keys: UNCACHED, ..full("reads") },
            Pick { keys: UNCACHED, ..of("fio", "reads") },
            AtLeast(0.95),
        ),
        ratio("files", full("tree"), of("std", "tree"), AtMost(1.0)),
        ratio(
            "stall",
            Pick { keys: NONE_BPF, ..full("p99") },
            Pick { keys: NONE, ..of("go", "p99") },
            AtMost(1.2),
        ),
        ratio(
            "events",
            Pick { keys: TOLD, ..full("blocked") },
            Pick { keys: TOLD, runtime: "floor", ..full("blocked") },
            AtMost(4.0),
        ),
        ratio(
            "events",
            Pick { keys: BPF, ..full("preempted") },
            Pick { keys: BPF, runtime: "floor", ..full("preempted") },
            AtMost(3.0),
        ),
        alone("events", Pick { keys: TOLD, ..full("unblocked_exact") }, AtLeast(100_000.0)),
        alone("events", Pick { keys: TOLD, note: "eintr", ..full("unblocked_exact") }, AtMost(0.0)),
        alone("events", Pick { keys: STICKY, ..full("unblocked_exact") }, AtLeast(100_000.0)),
        alone(
            "events",
            Pick { keys: STICKY, note: "eintr", ..full("unblocked_exact") },
            AtMost(0.0),
        ),
        idle_cost(&[("events", "bpf"), ("work", "yield")]),
        idle_cost(&[("events", "bpf"), ("work", "message")]),
        idle_cost(&[("events", "bpf"), ("work", "echo")]),
        idle_cost(&[("events", "bpf"), ("work", "compute")]),
        idle_cost(&[("events", "perf"), ("work", "yield")]),
        idle_cost(&[("events", "perf"), ("work", "message")]),
        idle_cost(&[("events", "perf"), ("work", "echo")]),
        idle_cost(&[("events", "perf"), ("work", "compute")]),
        idle_cost(&[("events", "watch"), ("work", "yield")]),
        idle_cost(&[("events", "watch"), ("work", "message")]),
        idle_cost(&[("events", "watch"), ("work", "echo")]),
        idle_cost(&[("events", "watch"), ("work", "compute")]),
        alone("preempt", Pick { keys: &[("quantum", "5ms")], ..full("cost") }, AtMost(1.02)),
        ready(&[("policy", "fixed"), ("by", "timer")]),
        ready(&[("policy", "fixed"), ("by", "thread")]),
        ready(&[("policy", "round-robin"), ("by", "timer")]),
        ready(&[("policy", "round-robin"), ("by", "thread")]),
        ready(&[("policy", "feedback"), ("by", "timer")]),
        ready(&[("policy", "feedback"), ("by", "thread")]),
        ratio(
            "spin-holder",
            Pick { keys: &[("lock", "with")], ..full("ops") },
            Pick { keys: &[("lock", "without")], ..full("ops") },
            AtLeast(1.0),
        ),
        // The VPs' own kernel threads, a spare for each, and a few of the runtime.
        blocked(&[("events", "bpf"), ("blocked", "0")], "count", 16.0),
        blocked(&[("events", "bpf"), ("blocked", "10")], "count", 26.0),
        blocked(&[("events", "bpf"), ("blocked", "1000")], "count", 1_016.0),
        traced(&[("load", "echo"), ("trace", "on")]),
        traced(&[("load", "hashing"), ("trace", "on")]),
        lost(&[("load", "echo"), ("trace", "on")]),
        lost(&[("load", "hashing"), ("trace", "on")]),
        // As in `parked`: 200 bytes for each of 100,000. And a kernel stack of 16 KiB, the task
        // structure and page tables.
        blocked(&[("events", "bpf"), ("blocked", "0")], "kernel_bytes", 20_000_000.0),
        blocked(&[("events", "bpf"), ("blocked", "1000")], "kernel_each_blocked", 49_152.0),
    ]
};

/// Result of one figure at one number of VPs.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub bench: &'static str,
    pub what: String,
    pub vps: usize,
    pub goal: String,
    /// The measured value; `None` if a row was missing.
    pub measured: Option<f64>,
    pub reached: bool,
    /// Whether the aim is reached; `None` if there is none.
    pub aimed: Option<bool>,
}

impl Verdict {
    /// `reached`, `missed`, or `missed (not measured)`, and whether the aim is reached.
    pub fn word(&self) -> &'static str {
        match (self.measured, self.reached, self.aimed) {
            (None, ..) => "missed (not measured)",
            (_, true, None) => "reached",
            (_, true, Some(true)) => "reached, and the aim",
            (_, true, Some(false)) => "reached, not the aim",
            (_, false, _) => "missed",
        }
    }
}

fn all() -> impl Iterator<Item = &'static Figure> {
    let others =
        io::FIGURES.iter().chain(control::FIGURES).chain(gates::FIGURES).chain(servers::FIGURES);
    let others = others
        .chain(hostile::FIGURES)
        .chain(observe::FIGURES)
        .chain(pages::FIGURES)
        .chain(remote::FIGURES)
        .chain(unmodified::FIGURES);
    FIGURES.iter().chain(others).chain(unwrapped::figures())
}

/// Judges every figure of `bench` by the rows of this run.
pub fn judge(bench: &str, rows: &[Row], options: &Options) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for figure in all().filter(|f| f.bench == bench) {
        let at = if figure.at.is_empty() { vps_of(bench, options) } else { figure.at.to_vec() };
        for vps in at {
            let measured = figure.measured(bench, rows, options, vps);
            let counts = measured.filter(|_| !figure.ours.fell_short(bench, rows, options, vps));
            let holds =
                |goal: Goal, value: Option<f64>| value.is_some_and(|value| goal.holds(value));
            let aimed = figure.aim.map(|aim| {
                let other = aim.of.map(|pick| pick.read(bench, rows, options, vps));
                holds(aim.goal, other.unwrap_or(counts))
            });
            verdicts.push(Verdict {
                bench: figure.bench,
                what: figure.what(),
                vps,
                goal: figure.goal_and_aim(),
                measured,
                reached: holds(figure.goal, counts),
                aimed,
            });
        }
    }
    verdicts
}

/// Numbers of VPs for which rows of `bench` exist.
fn vps_of(bench: &str, options: &Options) -> Vec<usize> {
    match bench {
        "parked" => options.vps.last().copied().into_iter().collect(),
        "spread" => vec![8],
        "echo" | "http" | "kv" | "priority-io" | "connections" | "events" | "preempt" | "trace"
        | "hostile" | "run" => {
            vec![1]
        }
        "kernel-threads" => vec![2],
        "priority" => vec![super::contender::own_cores().len()],
        "inversion" => vec![1],
        "stall" => vec![super::plan::STALL_VPS],
        "unwrapped" | "remote" => vec![super::contender::own_cores().len()],
        _ => options.vps.clone(),
    }
}

impl Goal {
    fn text(self) -> String {
        use super::report::table::number;
        match self {
            Goal::AtMost(x) => format!("<= {}", number(x)),
            Goal::AtLeast(x) => format!(">= {}", number(x)),
            Goal::Within(least, most) => format!("{} to {}", number(least), number(most)),
            Goal::Any => "any".to_owned(),
        }
    }

    fn holds(self, value: f64) -> bool {
        match self {
            Goal::AtMost(most) => value <= most,
            Goal::AtLeast(least) => value >= least,
            Goal::Within(least, most) => (least..=most).contains(&value),
            Goal::Any => true,
        }
    }
}

impl Pick {
    /// Returns whether the row reports that the work was incomplete (`reached:=0`). None of its
    /// values then reaches a figure.
    fn fell_short(&self, bench: &str, rows: &[Row], options: &Options, vps: usize) -> bool {
        Pick { note: "reached", ..*self }.read(bench, rows, options, vps) == Some(0.0)
    }

    fn read(&self, bench: &str, rows: &[Row], options: &Options, vps: usize) -> Option<f64> {
        let row = self.row(bench, rows, options, vps)?;
        if self.note.is_empty() {
            Some(row.summary.median)
        } else {
            row.notes.get(self.note)?.parse().ok()
        }
    }

    fn row<'a>(
        &self,
        bench: &str,
        rows: &'a [Row],
        options: &Options,
        vps: usize,
    ) -> Option<&'a Row> {
        let vps = if self.vps == 0 { vps } else { self.vps };
        let queue = if self.queue.is_empty() { options.queue.as_str() } else { self.queue };
        rows.iter().find(|row| {
            let id = &row.identity;
            let rival = self.variant == "-";
            id.bench == bench
                && id.metric == self.metric
                && id.runtime == self.runtime
                && id.vps == vps
                && (rival || (id.variant == self.variant && id.queue == queue))
                && self
                    .keys
                    .iter()
                    .all(|(key, value)| id.keys.get(*key).is_some_and(|v| v == value))
        })
    }

    fn what(&self) -> String {
        let metric = if self.note.is_empty() {
            self.metric.to_owned()
        } else {
            format!("{} {}", self.metric, self.note)
        };
        let keys: String = self.keys.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        let vps = if self.vps == 0 { String::new() } else { format!(" at {} VP", self.vps) };
        let label = match (self.runtime, self.queue) {
            ("kumihimo", "" | "-") => self.variant,
            ("kumihimo", queue) => queue,
            (other, _) => other,
        };
        format!("{metric} {label}{keys}{vps}")
    }
}

impl Figure {
    fn measured(&self, bench: &str, rows: &[Row], options: &Options, vps: usize) -> Option<f64> {
        let Some(over) = self.over else { return self.ours.read(bench, rows, options, vps) };
        if PAIRED.contains(&bench) {
            let [ours, other] = [self.ours, over].map(|pick| pick.row(bench, rows, options, vps));
            let (ours, other) = (&ours?.values, &other?.values);
            // A contender without output in a slice has no row for it, and which slice that was is
            // unknown.
            if ours.len() == other.len() {
                let ratios: Vec<f64> = ours.iter().zip(other).map(|(a, b)| a / b).collect();
                return summary(&ratios).map(|ratios| ratios.median);
            }
        }
        let ours = self.ours.read(bench, rows, options, vps)?;
        Some(ours / over.read(bench, rows, options, vps)?)
    }

    fn goal_and_aim(&self) -> String {
        let goal = self.goal.text();
        match self.aim {
            None => goal,
            Some(Aim { of: None, goal: aim }) => format!("{goal}, aim {}", aim.text()),
            Some(Aim { of: Some(pick), goal: aim }) => {
                format!("{goal}, aim {} {}", pick.metric, aim.text())
            }
        }
    }

    fn what(&self) -> String {
        match self.over {
            None => self.ours.what(),
            Some(over) if over.metric == self.ours.metric && over.runtime != "kumihimo" => {
                format!("{} / {}", self.ours.what(), over.runtime)
            }
            Some(over) => format!("{} / {}", self.ours.what(), over.what()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::NAMES;
    use super::super::report::row::tests::from;
    use super::super::report::row::{Rows, Sample};
    use super::*;

    fn options() -> Options {
        Options { vps: vec![1], rivals: true, full: false, runs: 1, queue: "ring".into(), seed: 1 }
    }

    fn rows(lines: &[(&str, &str)]) -> Vec<Row> {
        let mut rows = Rows::default();
        for (runtime, line) in lines {
            rows.add(Sample::parse(line, &from("yield", runtime, 1)).unwrap()).unwrap();
        }
        rows.rows()
    }

    #[test]
    fn verdicts_are_reached_missed_or_not_measured() {
        let verdicts = judge(
            "yield",
            &rows(&[("kumihimo", "switch 21 ns"), ("go", "switch 80 ns")]),
            &options(),
        );
        assert_eq!(verdicts.len(), 2);
        assert_eq!((verdicts[0].measured, verdicts[0].word()), (None, "missed (not measured)"));
        assert_eq!(verdicts[1].word(), "missed");
        let verdicts = judge(
            "yield",
            &rows(&[("kumihimo", "switch 20 ns"), ("floor", "switch 10 ns")]),
            &options(),
        );
        assert_eq!((verdicts[0].measured, verdicts[0].word()), (Some(2.0), "reached"));
        assert_eq!(verdicts[1].word(), "missed (not measured)");
    }

    #[test]
    fn figures_are_computed_per_round_where_slices_alternate() {
        let mut rows = Rows::default();
        for (runtime, value) in [
            ("kumihimo", 10),
            ("redis", 10),
            ("kumihimo", 50),
            ("redis", 20),
            ("kumihimo", 90),
            ("redis", 300),
        ] {
            let line = format!("rps {value} 1/s command=set connections=50 pipeline=16");
            rows.add(Sample::parse(&line, &from("kv", runtime, 1)).unwrap()).unwrap();
        }
        let judged = |rows: &Rows| {
            judge("kv", &rows.rows(), &options()).into_iter().find_map(|v| v.measured)
        };
        // 1, 2.5 and 0.3; the medians are 50 and 20.
        assert_eq!(judged(&rows), Some(1.0));
        let line = "rps 20 1/s command=set connections=50 pipeline=16";
        rows.add(Sample::parse(line, &from("kv", "redis", 1)).unwrap()).unwrap();
        assert_eq!(judged(&rows), Some(2.5));
    }

    #[test]
    fn short_figure_is_missed() {
        let judged = |reached: u8| {
            let line = format!("p99_ratio 1.1 ratio stall=worst events=bpf reached:={reached}");
            let mut rows = Rows::default();
            rows.add(Sample::parse(&line, &from("stall", "kumihimo", 2)).unwrap()).unwrap();
            let verdict = judge("stall", &rows.rows(), &options()).remove(0);
            (verdict.measured, verdict.word())
        };
        assert_eq!(judged(1), (Some(1.1), "reached"));
        assert_eq!(judged(0), (Some(1.1), "missed"));
    }

    #[test]
    fn aim_is_stricter_than_the_goal() {
        let judged = |looks: f64| {
            let line = format!("looks {looks} 1/s work=worst events=watch");
            let vps = super::super::contender::own_cores().len();
            let mut rows = Rows::default();
            rows.add(Sample::parse(&line, &from("unwrapped", "kumihimo", vps)).unwrap()).unwrap();
            let verdicts = judge("unwrapped", &rows.rows(), &options());
            let one = verdicts.into_iter().find(|v| v.measured.is_some()).expect("one figure");
            (one.goal.clone(), one.word())
        };
        let goal = "<= 1,000, aim <= 100".to_owned();
        assert_eq!(judged(100.0), (goal.clone(), "reached, and the aim"));
        assert_eq!(judged(101.0), (goal.clone(), "reached, not the aim"));
        assert_eq!(judged(1_001.0), (goal, "missed"));
        assert!(Goal::Within(0.95, 1.05).holds(0.95) && !Goal::Within(0.95, 1.05).holds(0.94));
    }

    #[test]
    fn every_figure_has_a_benchmark_and_a_unique_name() {
        let mut names: Vec<_> = super::all().map(|f| (f.bench, f.what(), f.at)).collect();
        assert!(names.iter().all(|(bench, ..)| NAMES.contains(bench)));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
