//! `--simulate`: discrete-event simulations for more cores than the machine has, and their
//! agreement with the papers' own figures.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use kumihimo_bench_simulate::locks::{self, Locking, Machine, Times, Waiting};
use kumihimo_bench_simulate::spread::{self, Costs, PROCESSORS, paper};
use kumihimo_bench_simulate::{lesser_bear, tender};

use super::figures::Verdict;
use super::plan::Options;
use super::report::row::{Identity, Rows, Sample};
use super::report::stats::summary;
use super::report::table;
use super::report::{Note, Outcome};

/// Names in place of a runtime: with built-in or given times, and with the paper's times.
const OURS: &str = "simulated";
/// See [`OURS`].
const PAPER: &str = "simulated-paper";

/// Benchmarks with a simulation.
const NAMES: [&str; 2] = ["spread", "resources"];

/// The simulations selected by `name`.
pub fn names(name: &str, times: bool) -> Result<Vec<&'static str>, String> {
    let names: Vec<_> = NAMES.into_iter().filter(|&other| name == "all" || name == other).collect();
    match names.len() {
        0 => Err(format!("{name} has no simulation; {} have", NAMES.join(" and "))),
        2 if times => Err("--times requires the name of one simulation".to_owned()),
        _ => Ok(names),
    }
}

/// Runs one simulation as often as `--runs` requests, each time with a different seed.
pub fn one(name: &str, options: &Options, times: Option<&Path>) -> Result<Outcome, String> {
    let seeds = options.seed..options.seed.saturating_add(options.runs as u64);
    let mut simulation =
        Simulation { bench: name, rows: Rows::default(), verdicts: Vec::new(), notes: Vec::new() };
    match name {
        "spread" => simulation.spread(seeds, &given(times, Costs::today, Costs::check)?),
        _ => simulation.resources(seeds, &given(times, Times::today, Times::check)?),
    }
    let Simulation { rows, verdicts, notes, .. } = simulation;
    Ok(Outcome {
        bench: name.to_owned(),
        rows,
        verdicts,
        failures: Vec::new(),
        refused: Vec::new(),
        notes,
    })
}

/// The times in the file, or the built-in ones.
fn given<T: serde::de::DeserializeOwned>(
    file: Option<&Path>,
    built_in: impl Fn() -> T,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<T, String> {
    let Some(path) = file else { return Ok(built_in()) };
    let in_it = |why: &dyn std::fmt::Display| format!("--times {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|e| in_it(&e))?;
    let times = serde_json::from_str(&text).map_err(|e| in_it(&e))?;
    check(&times).map_err(|e| in_it(&e))?;
    Ok(times)
}

struct Simulation<'a> {
    bench: &'a str,
    rows: Rows,
    verdicts: Vec<Verdict>,
    notes: Vec<Note>,
}

impl Simulation<'_> {
    /// Adds one sample of a design. `keys` have the format of a contender's output.
    fn add(
        &mut self,
        runtime: &str,
        design: &str,
        metric: &str,
        value: f64,
        unit: &str,
        keys: &str,
    ) {
        let from = Identity {
            bench: self.bench.to_owned(),
            metric: String::new(),
            runtime: runtime.to_owned(),
            variant: "-".to_owned(),
            queue: design.to_owned(),
            vps: 1,
            keys: BTreeMap::new(),
        };
        let sample =
            Sample::parse(&format!("{metric} {value} {unit} {keys}"), &from).expect("a sample");
        self.rows.add(sample).expect("one unit a metric");
    }

    /// The cells of a table for the rows with this key at each of `at`; `-` if there is no row.
    fn line(
        &self,
        runtime: &str,
        design: &str,
        metric: &str,
        key: &str,
        at: &[usize],
        keys: &[(&str, &str)],
    ) -> Vec<String> {
        let cell = |at: &usize| {
            let values: Vec<f64> = self
                .rows
                .samples()
                .filter(|s| {
                    s.identity.runtime == runtime
                        && s.identity.queue == design
                        && s.identity.metric == metric
                })
                .filter(|s| s.identity.keys.get(key).is_some_and(|v| *v == at.to_string()))
                .filter(|s| {
                    keys.iter()
                        .all(|(key, value)| s.identity.keys.get(*key).is_some_and(|v| v == value))
                })
                .map(|s| s.value)
                .collect();
            summary(&values).map_or("-".to_owned(), |s| table::number(s.median))
        };
        at.iter().map(cell).collect()
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(Note::Text(text.into()));
    }

    fn resources(&mut self, seeds: Range<u64>, times: &Times) {
        let paper = tender::times();
        for seed in seeds.clone() {
            for (whose, times, ways) in
                [(OURS, times, &Waiting::ALL[..]), (PAPER, &paper, &[Waiting::Spinning])]
            {
                for (name, load) in times.loads() {
                    for (locking, waiting) in
                        Locking::ALL.iter().flat_map(|l| ways.iter().map(move |w| (*l, *w)))
                    {
                        // Without locks, the way of waiting has no effect.
                        if locking == Locking::Vp && waiting == Waiting::Fifo {
                            continue;
                        }
                        for cores in locks::CORES {
                            let machine =
                                Machine { cores, waiting, hand_over_ns: times.hand_over_ns };
                            let value = locks::relative(&load, locking, &machine, seed);
                            let keys =
                                format!("locking={locking} wait={} cores={cores}", waiting.name());
                            self.add(whose, "-", name, value, "of_one_core", &keys);
                        }
                    }
                }
            }
        }
        for (whose, what) in [(OURS, &times.machine), (PAPER, &paper.machine)] {
            self.note(format!("Time relative to one core, by number of cores; {whose}: {what}."));
            self.notes.push(self.table_of_locks(whose));
        }
        for figure in tender::check(seeds.start) {
            let tolerance = if figure.fitted { 0.005 } else { 0.015 };
            let how = if figure.fitted { "fitted" } else { "predicted" };
            self.verdicts.push(Verdict {
                bench: "resources",
                what: format!("P3's {} locking={}, {how}", figure.load, figure.locking),
                vps: figure.cores,
                goal: format!("{} +- {tolerance}", table::number(figure.paper)),
                measured: Some(figure.simulated),
                reached: (figure.simulated - figure.paper).abs() <= tolerance,
                aimed: None,
            });
        }
        self.note(tender::FINDINGS);
    }

    fn table_of_locks(&self, whose: &str) -> Note {
        let head = ["load", "locking", "wait"].map(str::to_owned).into_iter();
        let head = head.chain(locks::CORES.iter().map(|cores| cores.to_string())).collect();
        let mut body = Vec::new();
        for load in ["create", "region", "message"] {
            for (locking, waiting) in
                Locking::ALL.iter().flat_map(|l| Waiting::ALL.map(|w| (l.name(), w.name())))
            {
                let keys = [("locking", locking), ("wait", waiting)];
                let cells = self.line(whose, "-", load, "cores", &locks::CORES, &keys);
                if cells.iter().all(|cell| cell == "-") {
                    continue;
                }
                body.push(
                    [load, locking, waiting].map(str::to_owned).into_iter().chain(cells).collect(),
                );
            }
        }
        Note::Table(head, body)
    }

    fn spread(&mut self, seeds: Range<u64>, costs: &Costs) {
        for seed in seeds {
            for (idle, costs) in [("asleep", costs.clone()), ("up", costs.clone().up())] {
                for processors in PROCESSORS {
                    let least = spread::least_of_even(processors);
                    let keys = format!("idle={idle} processors={processors}");
                    let outcomes = spread::Design::ALL
                        .map(|design| (design, spread::run(design, processors, &costs, seed)));
                    for (design, outcome) in outcomes {
                        for (metric, time) in [("even", outcome.even), ("busy", outcome.busy)] {
                            if let Some(ns) = time {
                                // With a share of two, a processor with one already counts as even:
                                // the points belong to the other row.
                                let note =
                                    if metric == "even" && least == 1 { " is:=busy" } else { "" };
                                let keys = format!("{keys}{note}");
                                self.add(OURS, design.name(), metric, ns as f64 / 1e3, "us", &keys);
                            }
                        }
                        self.add(
                            OURS,
                            design.name(),
                            "least",
                            outcome.least as f64,
                            "threads",
                            &keys,
                        );
                    }
                    let even = outcomes.map(|(_, outcome)| outcome.even);
                    if let [Some(ring), Some(locked), _] = even {
                        self.add(
                            OURS,
                            "-",
                            "locked_over_ring",
                            locked as f64 / ring as f64,
                            "ratio",
                            &keys,
                        );
                    }
                }
            }
            for processors in PROCESSORS {
                let keys = format!("idle=up processors={processors}");
                let times = paper::Design::ALL
                    .map(|design| lesser_bear::ms(design, processors, lesser_bear::costs(), seed));
                for (design, ms) in ["ring", "locked"].into_iter().zip(times) {
                    if let Some(ms) = ms {
                        self.add(PAPER, design, "even", ms * 1e3, "us", &keys);
                    }
                }
                if let [Some(ring), Some(conventional)] = times {
                    self.add(PAPER, "-", "locked_over_ring", conventional / ring, "ratio", &keys);
                }
            }
        }
        self.note(format!(
            "By number of processors; {OURS}: {}. idle=up: no processor has to be woken. {PAPER}: P4's machine, fitted.",
            costs.machine
        ));
        self.notes.push(self.table_of_spread());
        let paper = [("ring", lesser_bear::RING_MS), ("locked", lesser_bear::CONVENTIONAL_MS)];
        for ((design, ms), simulated) in paper.into_iter().zip(paper::Design::ALL) {
            let measured =
                lesser_bear::ms(simulated, lesser_bear::PROCESSORS, lesser_bear::costs(), 1);
            self.verdicts.push(Verdict {
                bench: "spread",
                what: format!("P4's {design}, ms, fitted"),
                vps: lesser_bear::PROCESSORS,
                goal: format!("{} +- 0.200", table::number(ms)),
                measured,
                reached: measured.is_some_and(|measured| (measured - ms).abs() <= 0.2),
                aimed: None,
            });
        }
        self.note(spread::FINDINGS);
        self.note(lesser_bear::FINDINGS);
    }

    fn table_of_spread(&self) -> Note {
        let head = ["", "unit", "runtime", "idle", "queue"].map(str::to_owned).into_iter();
        let head = head.chain(PROCESSORS.iter().map(|n| n.to_string())).collect();
        let mut body = Vec::new();
        for (whose, idle) in [(OURS, "asleep"), (OURS, "up"), (PAPER, "up")] {
            for (metric, unit) in [
                ("even", "us"),
                ("busy", "us"),
                ("least", "threads"),
                ("locked_over_ring", "ratio"),
            ] {
                for design in ["ring", "locked", "steal", "-"] {
                    let cells = self.line(
                        whose,
                        design,
                        metric,
                        "processors",
                        &PROCESSORS,
                        &[("idle", idle)],
                    );
                    if cells.iter().any(|cell| cell != "-") {
                        body.push(
                            [metric, unit, whose, idle, design]
                                .map(str::to_owned)
                                .into_iter()
                                .chain(cells)
                                .collect(),
                        );
                    }
                }
            }
        }
        Note::Table(head, body)
    }
}

#[cfg(test)]
mod tests {
    use kumihimo_bench_simulate::locks::Load;

    use super::*;

    fn options() -> Options {
        Options { vps: vec![1], rivals: false, full: false, runs: 1, queue: "ring".into(), seed: 1 }
    }

    fn file(name: &str, text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("kumi-times-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn both_simulations_reach_the_goals_of_the_papers() {
        for (name, rows) in [("spread", 50), ("resources", 190)] {
            let outcome = one(name, &options(), None).unwrap();
            assert!(outcome.verdicts.iter().all(|v| v.reached), "{name}");
            assert!(outcome.json_lines().lines().count() > rows, "{name}");
            assert!(
                !super::super::report::plot::plots(name, &outcome.rows).unwrap().is_empty(),
                "{name}"
            );
            assert!(outcome.plain().contains("paper"));
        }
    }

    #[test]
    fn given_times_replace_the_built_in_times() {
        let create =
            Load { kinds: 1, total_ns: 100.0, resource_ns: 20.0, names_ns: 30.0, shared_ns: 0.0 };
        let times =
            Times { machine: "another".into(), hand_over_ns: 0.0, create, ..Times::today() };
        let path = file("good", &serde_json::to_string(&times).unwrap());
        let outcome = one("resources", &options(), Some(&path));
        fs::remove_file(&path).unwrap();
        let outcome = outcome.unwrap();
        assert!(outcome.plain().contains("simulated: another."));
        // Waiting takes no time here, so on 64 cores only the single tree's share remains.
        let at_64 =
            |s: &&Sample| s.identity.keys["cores"] == "64" && s.identity.keys["locking"] == "kind";
        let create = outcome
            .rows
            .samples()
            .filter(at_64)
            .find(|s| s.identity.keys["wait"] == "spin")
            .unwrap();
        assert!((create.value - 0.3).abs() < 0.01, "{}", create.value);
    }

    #[test]
    fn invalid_times_are_refused() {
        for (name, text, why) in [
            ("spread", "{", "EOF"),
            ("spread", "{}", "missing field `machine`"),
            ("resources", "[1, 2]", "invalid"),
            (
                "resources",
                &serde_json::to_string(&Costs::today()).unwrap(),
                "unknown field `create_ns`",
            ),
            (
                "spread",
                &serde_json::to_string(&Costs { switch_ns: 0, ..Costs::today() }).unwrap(),
                "switch_ns: 0",
            ),
        ] {
            let path = file(name, text);
            let refused = one(name, &options(), Some(&path)).err().expect("refused");
            fs::remove_file(&path).unwrap();
            assert!(refused.contains(why) && refused.contains("kumi-times"), "{refused}");
        }
        assert!(
            one("spread", &options(), Some(Path::new("/nowhere/times")))
                .err()
                .unwrap()
                .contains("/nowhere/times")
        );
    }

    #[test]
    fn benchmarks_without_simulation_are_refused() {
        assert_eq!(names("all", false).unwrap(), NAMES);
        assert_eq!(names("spread", true).unwrap(), ["spread"]);
        assert!(names("yield", false).unwrap_err().contains("yield has no simulation"));
        assert!(names("all", true).unwrap_err().contains("--times"));
    }
}
