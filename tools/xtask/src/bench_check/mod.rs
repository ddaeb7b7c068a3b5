//! `cargo xtask bench-check`: compares the current tree with a commit on twenty named rows.
//!
//! Two builds are measured in alternating order, at least fifteen pairs a row. Each row is judged
//! by the bootstrap interval of its new/base ratios ([`verdict`] has the rules).

mod builds;
mod child;
mod programs;
mod report;
mod rows;
mod schedule;
mod statistics;
mod verdict;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::{Instructions, raise_descriptors};
use serde_json::json;

use crate::Failure;
use builds::{Build, Side, Workshop};
use child::Trouble;
use programs::{Sample, Setting, measure, remove_stale};
use report::Report;
use rows::{Program, Row, choose};
use schedule::{Budget, run as run_schedule};
use verdict::{MOST_PAIRS, PAIRS};

/// Load average above which the machine is not idle.
const IDLE: f64 = 0.5;

#[derive(clap::Args)]
pub struct Args {
    /// Commit to compare the current tree with
    #[arg(long, value_name = "COMMIT")]
    base: String,
    /// Measure only these rows, separated by commas [default: all twenty]
    #[arg(long, value_delimiter = ',', value_name = "ROW")]
    rows: Vec<String>,
    /// Pairs of measurements that each row gets first; with fewer than 15, no row is decided
    #[arg(long, default_value_t = PAIRS as u16, value_parser = clap::value_parser!(u16).range(1..=MOST_PAIRS as i64))]
    pairs: u16,
    /// Limit on the time for measuring, in minutes, without builds; rows without enough pairs stay
    /// undecided
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
}

/// Builds, measures and reports. The exit code is 1 if a row has regressed or too few are decided.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let named: Vec<String> = args.rows.iter().filter(|name| !name.is_empty()).cloned().collect();
    let rows = choose(&named)?;
    let workshop = Workshop::open(&std::env::current_dir()?)?;
    let mut notes = Vec::new();
    let (base, new) = build(&workshop, &args.base, &mut notes)?;
    raise_descriptors();
    remove_stale();
    notes.extend(machine());
    let mut budget = Budget::new(Duration::from_secs(60 * u64::from(args.minutes)));
    let samples = workshop.folder().join("samples.jsonl");
    let mut driver = Driver::new(&base, &new, &rows, &samples)?;
    let outcomes =
        run_schedule(&rows, args.pairs.into(), &mut budget, &mut |program, side, pair| {
            driver.measure(program, side, pair)
        });
    if let Some(why) = driver.unwritten {
        return Err(format!("{}: {why}", samples.display()).into());
    }
    notes.push(driver.setting.describe());
    notes.push(format!(
        "measured for {:.0} s of {} min",
        budget.spent().as_secs_f64(),
        args.minutes
    ));
    let report =
        Report { base: base.title, new: new.title, notes, named: !named.is_empty(), outcomes };
    let path = workshop.folder().join("report.md");
    fs::write(&path, report.markdown()).map_err(|e| format!("{}: {e}", path.display()))?;
    print!("{}", report.plain());
    println!("report: {}\nsamples: {}", path.display(), samples.display());
    let failures = report.failures();
    failures.iter().for_each(|why| eprintln!("bench-check: FAILED: {why}"));
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds `base`, and the current commit or, if there are changes, the working tree.
fn build(
    workshop: &Workshop,
    base: &str,
    notes: &mut Vec<String>,
) -> Result<(Build, Build), String> {
    let hash = workshop.resolve(base)?;
    let changes = workshop.changes()?;
    let base = workshop.commit(&hash)?;
    if changes.is_empty() {
        let head = workshop.resolve("HEAD")?;
        if head == hash {
            notes.push(
                "both builds are of the same commit, so the intervals show the noise".to_owned(),
            );
        }
        return Ok((base, workshop.commit(&head)?));
    }
    let count = changes.lines().count();
    let note =
        format!("the tree has {count} uncommitted changes; the new build is of the working tree");
    eprintln!("bench-check: {note}");
    notes.push(note);
    Ok((base, workshop.working_tree()?))
}

/// Conditions that affect comparisons with other runs.
fn machine() -> Vec<String> {
    let mut notes = Vec::new();
    if let Err(e) = std::thread::spawn(Instructions::of_children).join().expect("no panic") {
        notes.push(format!("this machine cannot count instructions: {e}"));
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    if let Some(load) =
        load.split(' ').next().and_then(|one| one.parse::<f64>().ok()).filter(|&load| load > IDLE)
    {
        notes.push(format!("the load average was {load} at the start: the machine was not idle"));
    }
    let set: Vec<String> = std::env::vars()
        .filter(|(name, _)| name.starts_with("KUMI_"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !set.is_empty() {
        notes.push(format!("both builds run with {}", set.join(" ")));
    }
    notes.iter().for_each(|note| eprintln!("bench-check: {note}"));
    notes
}

/// Takes measurements and records each.
struct Driver<'a> {
    builds: [&'a Build; 2],
    rows: &'a [Row],
    setting: Setting,
    samples: File,
    /// Error of the first sample that could not be written.
    unwritten: Option<std::io::Error>,
    begun: Instant,
    /// Number of pairs at the last progress message.
    told: usize,
}

impl<'a> Driver<'a> {
    fn new(
        base: &'a Build,
        new: &'a Build,
        rows: &'a [Row],
        samples: &Path,
    ) -> Result<Driver<'a>, String> {
        let file = File::create(samples).map_err(|e| format!("{}: {e}", samples.display()))?;
        Ok(Driver {
            builds: [base, new],
            rows,
            setting: Setting::new(&base.kumi),
            samples: file,
            unwritten: None,
            begun: Instant::now(),
            told: 0,
        })
    }

    fn measure(
        &mut self,
        program: Program,
        side: Side,
        pair: Option<usize>,
    ) -> (Result<Sample, Trouble>, Duration) {
        if let Some(number) = pair.filter(|&number| number >= self.told) {
            self.told = number + 1;
            eprintln!(
                "bench-check: pair {}, after {:.0} s",
                self.told,
                self.begun.elapsed().as_secs_f64()
            );
        }
        let begun = Instant::now();
        let result = measure(program, &self.builds[side as usize].kumi, &mut self.setting);
        let took = begun.elapsed();
        let rows: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| row.program.is_same(program))
            .map(|row| row.name)
            .collect();
        let mut line = json!({ "rows": rows, "build": side.name(), "pair": pair, "seconds": took.as_secs_f64() });
        match &result {
            Ok(sample) => {
                line["metrics"] = json!(sample.metrics);
                line["instructions"] = json!(sample.instructions);
            }
            Err(why) => {
                line["error"] = json!(why.to_string());
                eprintln!("bench-check: {} of the {} build: {why}", rows.join(", "), side.name());
            }
        }
        if let Err(e) = writeln!(self.samples, "{line}") {
            self.unwritten.get_or_insert(e);
        }
        (result, took)
    }
}
