//! `kumi bench`: runs contenders in turn, and prints medians, tables, JSON, and the targets.
//!
//! - `plan` selects what runs: benchmarks, their cells, the contenders in each.
//! - `contender` starts contenders; `load` contains load generators and peers, `child` Kumihimo's
//!   side.
//! - `runs` contains the benchmarks that need more than a process that prints samples; [`rounds`]
//!   runs all others. `simulate` computes rows instead of measuring them.
//! - `report` makes rows, tables and charts from samples, `figures` makes the verdicts.
//!
//! Samples flow from contenders through `runs` to `report`; `figures` only reads rows.

pub mod child;
pub mod contender;
mod figures;
pub mod load;
mod plan;
pub mod report;
pub mod runs;
mod simulate;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use contender::{Contender, Missing, Programs, Trouble};
use plan::Options;
use report::Outcome;
use report::row::Rows;

/// Without `--full`, no further round is started that would end after this time.
const BUDGET: Duration = Duration::from_secs(50);
/// The same for `servers`, which has more contenders than any other benchmark, each with its own
/// mount: 300 s in total.
const SERVERS_BUDGET: Duration = Duration::from_secs(270);
/// Minimum number of rounds, if as many were requested: a single run of a tail latency is not
/// meaningful on a shared machine.
const FEWEST: usize = 3;

#[derive(clap::Args)]
pub struct Args {
    /// Name of the benchmark, or `all`
    #[arg(
        required_unless_present = "quick",
        value_parser = clap::builder::PossibleValuesParser::new(plan::NAMES.into_iter().chain(["all"]))
    )]
    name: Option<String>,
    /// Run one round of the benchmarks of threads and of `echo`: some minutes, to compare machines
    #[arg(long, conflicts_with_all = ["name", "full", "simulate", "write_times"])]
    quick: bool,
    /// Numbers of virtual processors (Go's GOMAXPROCS, Tokio's workers, cores for kernel threads)
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..))]
    vps: Vec<u16>,
    /// Also build and run the rivals: Go, Tokio, kernel threads
    #[arg(long)]
    rivals: bool,
    /// Number of rounds; in each, every contender runs once [default: 5; 20 of servers --full; 9 of
    /// hostile; 3 of run; 9 of unwrapped with rivals, else 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Run every cell, not only those of the targets
    #[arg(long)]
    full: bool,
    /// Write the rows to this file, one JSON object a line
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a report into this directory
    #[arg(long)]
    report: Option<PathBuf>,
    /// Kumihimo's run-queue designs
    #[arg(long, value_parser = plan::QUEUES, default_value = child::default_queue())]
    queue: String,
    /// Simulate `spread` on up to 128 processors, or `resources` on up to 64 cores, instead of
    /// measuring
    #[arg(long)]
    simulate: bool,
    /// Times of single steps for `--simulate`: a JSON object, see `kumihimo-bench-simulate`;
    /// built-in ones by default
    #[arg(long, requires = "simulate")]
    times: Option<PathBuf>,
    /// Write the times of single steps of `resources`, as measured in this run, for `--times`
    #[arg(long, conflicts_with = "simulate", value_name = "FILE")]
    write_times: Option<PathBuf>,
    /// Seed of random orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmarks. Fails if any contender failed or was missing.
pub fn run(args: Args) -> Result<(), String> {
    let asked = args.name.as_deref().unwrap_or("all");
    let names = match (args.quick, args.simulate) {
        (true, _) => plan::QUICK.to_vec(),
        (false, true) => simulate::names(asked, args.times.is_some())?,
        (false, false) => {
            plan::NAMES.into_iter().filter(|&name| asked == "all" || asked == name).collect()
        }
    };
    let mut vps: Vec<usize> = Vec::new();
    for n in args.vps.into_iter().map(usize::from) {
        if !vps.contains(&n) {
            vps.push(n);
        }
    }
    let options_of = |bench: &str| Options {
        vps: vps.clone(),
        rivals: args.rivals,
        full: args.full,
        runs: args.runs.map_or_else(
            || if args.quick { 1 } else { plan::runs(bench, args.rivals, args.full) },
            usize::from,
        ),
        queue: args.queue.clone(),
        seed: args.seed,
    };
    if args.write_times.is_some() && !names.contains(&"resources") {
        return Err(format!("--write-times: only `resources` measures such steps, not {asked}"));
    }
    let programs = if args.simulate {
        Programs::new()
    } else {
        contender::rivals::programs(args.rivals, &names)
    };
    // Opened first, so that an unwritable path does not cost an hour of measuring.
    let mut json = match &args.json {
        None => None,
        Some(path) => {
            Some(std::fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?)
        }
    };
    if let Some(folder) = &args.report {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    // After the rivals were built, whose load is not that of the machine.
    let origin = report::Origin::now(command_line());
    let mut outcomes = Vec::new();
    for name in names {
        let options = options_of(name);
        let outcome = match args.simulate {
            true => simulate::one(name, &options, args.times.as_deref())?,
            false => one(name, &options, &programs),
        };
        print!("{}", outcome.plain());
        if let (Some(path), "resources") = (&args.write_times, name) {
            runs::resources::write_times(path, &outcome.rows)?;
        }
        if let Some(file) = &mut json {
            file.write_all(outcome.json_lines().as_bytes()).map_err(|e| format!("--json: {e}"))?;
        }
        outcomes.push(outcome);
        if let Some(folder) = &args.report {
            report::write(folder, &origin, &outcomes)?;
        }
    }
    let failures = outcomes.iter().map(|o| o.failures.len()).sum::<usize>();
    match failures {
        0 => Ok(()),
        n => Err(format!("{n} contenders printed no row; the reasons are above")),
    }
}

fn command_line() -> String {
    let args: Vec<String> = std::env::args().skip(1).collect();
    format!("kumi {}", args.join(" "))
}

fn one(bench: &str, options: &Options, programs: &Programs) -> Outcome {
    eprintln!("{bench}:");
    let start = Instant::now();
    let mut rows = Rows::default();
    let mut missing = Missing::default();
    let run = |contender: &Contender, vps| contender.run(programs, bench, vps);
    let mut samples = match bench {
        "echo" => runs::sockets::echo::run(options, programs, &mut missing),
        "http" => runs::sockets::http::run(options, programs, &mut missing),
        "kv" => runs::sockets::kv::run(options, programs, &mut missing),
        "priority-io" => runs::sockets::priority_io::run(options, programs, &mut missing),
        "connections" => runs::sockets::connections::run(options, programs, &mut missing),
        "stall" => runs::stall::run(options, programs, &mut missing),
        "unwrapped" => runs::unwrapped::run(options, programs, &mut missing),
        "trace" => runs::trace::run(options, programs, &mut missing),
        "resources" => runs::resources::run(options, programs, &mut missing),
        "control" => runs::control::run(options, programs, &mut missing),
        "observe" => runs::observe::run(options, programs, &mut missing),
        "report" => runs::report::run(options, &mut missing),
        "hostile" => runs::hostile::run(options, programs, &mut missing),
        "run" => runs::unmodified::run(options, &mut missing),
        "rpc" => runs::rpc::run(options, programs, &mut missing),
        "remote" => runs::remote::run(options, programs, &mut missing),
        "priority" => runs::priority::run(options, programs, &mut missing),
        "inversion" => runs::inversion::run(options, programs, &mut missing),
        "servers" => runs::servers::run(options, programs, &mut missing),
        _ => rounds(bench, options, &mut missing, run),
    };
    if bench == "events" {
        samples.extend(runs::idle::run(options, programs, &mut missing));
    }
    if bench == "priority-local" {
        samples.extend(preempted(options, programs, &mut missing));
    }
    for sample in samples {
        if let Err(why) = rows.add(sample) {
            missing.failures.push(why);
        }
    }
    if bench == "spread" {
        for sample in locked_over_ring(&rows) {
            rows.add(sample).expect("a new identity");
        }
    }
    eprintln!("  took {:.0} s", start.elapsed().as_secs_f64());
    let notes = match bench {
        "servers" => runs::servers::notes(&rows.rows()),
        "unwrapped" => runs::unwrapped::notes(options),
        "run" => runs::unmodified::notes(options, &rows.rows()),
        _ => Vec::new(),
    };
    // A reduced run is not judged by targets for the whole.
    let judged = bench != "unwrapped" || plan::is_whole(options);
    let verdicts = if judged { figures::judge(bench, &rows.rows(), options) } else { Vec::new() };
    Outcome {
        bench: bench.to_owned(),
        rows,
        verdicts,
        failures: missing.failures,
        refused: missing.refused,
        notes,
    }
}

/// Runs all rounds. Within a round, the contenders of each cell run in turn.
fn rounds(
    bench: &str,
    options: &Options,
    missing: &mut Missing,
    run: impl Fn(&Contender, usize) -> Result<Vec<report::row::Sample>, Trouble>,
) -> Vec<report::row::Sample> {
    let start = Instant::now();
    let budget = if bench == "servers" { SERVERS_BUDGET } else { BUDGET };
    let mut samples = Vec::new();
    let mut failed = Vec::new();
    let mut refused: Vec<&str> = Vec::new();
    let cells = plan::cells(bench, options);
    'rounds: for round in 0..options.runs {
        let began = Instant::now();
        for (c, cell) in cells.iter().enumerate() {
            for (i, contender) in cell.contenders.iter().enumerate() {
                let source = contender.value("events");
                if round >= contender.at_most
                    || failed.contains(&(c, i))
                    || source.is_some_and(|source| refused.contains(&source))
                {
                    continue;
                }
                if round >= FEWEST && !options.full && start.elapsed() > budget {
                    break 'rounds;
                }
                let label = contender.describe(bench, cell.vps);
                if round == 0 {
                    eprintln!("  {label}");
                }
                match run(contender, cell.vps) {
                    Ok(some) => samples.extend(some),
                    Err(trouble) => {
                        failed.push((c, i));
                        match (&trouble, source) {
                            // An unavailable source is reported once.
                            (Trouble::Refused(why), Some(source)) if why.starts_with(source) => {
                                refused.push(source);
                                missing.note(&format!("kumihimo {bench} events={source}"), trouble);
                            }
                            _ => missing.note(&label, trouble),
                        }
                    }
                }
            }
        }
        if round + 1 >= FEWEST && !options.full && start.elapsed() + began.elapsed() > budget {
            break;
        }
    }
    samples
}

/// Rows `preempted` of `events`, measured in the same minutes, with which `priority-local` is
/// compared.
fn preempted(
    options: &Options,
    programs: &Programs,
    missing: &mut Missing,
) -> Vec<report::row::Sample> {
    let contender = plan::preempted(options);
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        match contender.run(programs, "events", 1) {
            Ok(some) => {
                samples.extend(some.into_iter().filter(|s| s.identity.metric == "preempted"))
            }
            Err(trouble) => {
                missing.note("priority-local, compared with preempted", trouble);
                break;
            }
        }
    }
    for sample in &mut samples {
        sample.identity.bench = "priority-local".to_owned();
    }
    samples
}

/// P4's figure: one sample for each pair of runs in which both became even.
fn locked_over_ring(rows: &Rows) -> Vec<report::row::Sample> {
    let of =
        |metric: &str| rows.samples().filter(|s| s.identity.metric == metric).collect::<Vec<_>>();
    let even = |s: &report::row::Sample| s.notes.get("even").is_none_or(|even| even == "1");
    let pairs = of("locked").into_iter().zip(of("ring"));
    pairs
        .filter(|(locked, ring)| even(locked) && even(ring))
        .map(|(locked, ring)| {
            let mut sample = locked.clone();
            sample.identity.metric = "locked_over_ring".to_owned();
            sample.identity.queue = "-".to_owned();
            sample.value = locked.value / ring.value;
            sample.unit = "ratio".to_owned();
            sample.notes.clear();
            sample
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::report::row::Sample;
    use super::report::row::tests::from;
    use super::*;

    #[test]
    fn ratio_of_spread_is_computed_from_pairs() {
        let mut rows = Rows::default();
        for line in [
            "ring 10 us",
            "locked 40 us",
            "ring 20 us",
            "locked 60 us",
            "ring 1 us even:=1",
            "locked 9 us even:=0",
        ] {
            rows.add(Sample::parse(line, &from("spread", "kumihimo", 8)).unwrap()).unwrap();
        }
        let values: Vec<f64> = locked_over_ring(&rows).iter().map(|s| s.value).collect();
        assert_eq!(values, [4.0, 3.0]);
    }

    #[test]
    fn missing_contender_is_reported_as_a_failure() {
        let options = Options {
            vps: vec![1],
            rivals: true,
            full: false,
            runs: 1,
            queue: "ring".into(),
            seed: 1,
        };
        let outcome = one("message", &options, &Programs::new());
        // Ours full and lean, Go, Tokio, std, may, Boost.Fiber, Java.
        assert_eq!(outcome.failures.len(), 8);
        assert!(outcome.verdicts.iter().all(|v| v.word() == "missed (not measured)"));
    }
}
