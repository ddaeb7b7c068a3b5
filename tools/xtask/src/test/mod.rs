//! `cargo xtask test`: runs every suite and prints counts and a summary line.
//!
//! All test programs are built first and run concurrently (`LANES`), the longest first. By default,
//! every suite runs with the machine's default mechanisms, and with one row of the matrix of
//! fallbacks, which the commit's hash selects. `--matrix` runs all rows.
//!
//! The laboratory's packages enable the feature `lab`, which is off in the product's default build.
//! Cargo unites the features of all packages of a call, so the laboratory is built and tested
//! separately, by `--laboratory`. `--matrix` builds everything with the feature.

pub mod binaries;
mod libtest;
mod matrix;
pub mod plan;
pub mod run;

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::report::{Counts, Report};
use crate::workspace;
use crate::{Failure, cargo_test};
use binaries::Binary;
use matrix::{Designs, ROWS};
use plan::Job;

/// Number of test programs that run concurrently. A program runs as many tests concurrently as
/// there are cores, and most tests wait most of the time: with three, two cores idle a fifth of it.
const LANES: usize = 4;

/// Programs that take longest, in descending order. They start first, so that none of them runs
/// alone at the end.
const LONG: [&str; 14] = [
    "kumi/mount",
    "kumihimo-capi/interface",
    "kumi/run",
    "kumi-lab/tour",
    "kumihimo-tests/events_bad_input",
    "kumihimo-tests/gates",
    "kumihimo-examples/programs",
    "kumihimo-tests/sticky",
    "kumihimo-tests/container",
    "kumihimo-kv/memory",
    "kumihimo-proof/power",
    "kumihimo-tests/events",
    "kumihimo-tests/preemption",
    "kumi/machine",
];

/// Packages in the directory `lab`. Some enable the feature `lab`.
pub const LABORATORY: [&str; 9] = [
    "kumi-lab",
    "kumihimo-bench",
    "kumihimo-bench-files",
    "kumihimo-bench-http",
    "kumihimo-bench-kit",
    "kumihimo-bench-locking",
    "kumihimo-bench-simulate",
    "kumihimo-bench-stall",
    "kumihimo-bench-unwrapped",
];

/// Packages whose tests depend on the absence of the feature `lab`, and whose programs no other
/// build of the workspace replaces.
const WITHOUT_LAB: [&str; 6] = [
    "kumihimo",
    "kumihimo-config",
    "kumihimo-io",
    "kumihimo-queue",
    "kumihimo-resource",
    "kumihimo-runtime",
];

#[derive(clap::Args)]
pub struct Args {
    /// Row of the matrix of fallbacks to run beside the defaults [default: selected by the commit]
    #[arg(long, env = "ROW", value_parser = clap::value_parser!(u64).range(0..ROWS.len() as u64))]
    row: Option<u64>,
    /// Run every row
    #[arg(long, conflicts_with = "row")]
    matrix: bool,
    /// Run the laboratory's suites instead of the product's, on the defaults only
    #[arg(long, conflicts_with = "matrix")]
    laboratory: bool,
    /// Run only rows, without suites on the defaults
    #[arg(long)]
    no_defaults: bool,
    /// Print the tests as `suite program test`, without running them
    #[arg(long)]
    list: bool,
    /// Run only programs whose `package/target` contains one of these
    only: Vec<String>,
}

/// Builds, runs and reports. The exit code is 0 if something ran and nothing failed.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let build_set = match (args.matrix, args.laboratory) {
        (true, _) => BuildSet::Everything,
        (false, true) => BuildSet::Laboratory,
        (false, false) => BuildSet::Product,
    };
    let mut binaries = build(build_set)?;
    if !args.only.is_empty() {
        binaries.retain(|binary| args.only.iter().any(|part| binary.name().contains(part)));
    }
    let mut report = Report::default();
    let mut jobs =
        if args.no_defaults { Vec::new() } else { plan::defaults(&binaries, args.matrix) };
    let designs = if args.matrix { Designs::All } else { Designs::Default };
    let rows = match build_set {
        BuildSet::Everything => allowed_rows(&mut report)?,
        BuildSet::Laboratory => Vec::new(),
        BuildSet::Product => one_row(args.row, designs)?,
    };
    for number in rows {
        let name = ROWS[number].name(designs);
        println!("row {number} of the matrix (ROW=n names another): {name}");
        jobs.extend(plan::row(number, &ROWS[number], designs, &binaries, args.matrix));
    }
    if args.list {
        return list(&jobs);
    }
    run_jobs(jobs, &mut report);
    if args.only.is_empty() && !args.no_defaults && !args.laboratory {
        documentation(&mut report, build_set)?;
    }
    println!("\n== summary");
    Ok(report.finish())
}

/// Adds every suite on the defaults and on every row of the matrix to `report`.
pub fn run_matrix(report: &mut Report) -> Result<(), Failure> {
    let product = build_product()?.into_iter();
    let product: Vec<Binary> =
        product.filter(|binary| WITHOUT_LAB.contains(&binary.package.as_str())).collect();
    let mut binaries = build(BuildSet::Everything)?;
    // Features that are off by default require another build of all dependent crates.
    let tracing = ["-p", "kumihimo", "--features", "tracing", "--test", "tracing"];
    binaries.extend(binaries::build(&tracing)?);
    let mut jobs = plan::defaults(&binaries, true);
    for mut job in plan::defaults(&product, true) {
        job.suite += " without the feature lab";
        jobs.push(job);
    }
    for number in allowed_rows(report)? {
        jobs.extend(plan::row(number, &ROWS[number], Designs::All, &binaries, true));
    }
    run_jobs(jobs, report);
    documentation(report, BuildSet::Everything)
}

/// The examples in the documentation, with the features that the tests were built with.
fn documentation(report: &mut Report, build_set: BuildSet) -> Result<(), Failure> {
    let mut cargo = workspace::cargo();
    cargo.arg("test").args(build_set.packages()).args(["--doc", "--no-fail-fast"]);
    cargo_test::suite(report, "documentation", &mut cargo)
}

/// Packages to build in one call of cargo.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BuildSet {
    /// All packages except the laboratory's, without the feature `lab`.
    Product,
    /// The laboratory's packages, with the feature.
    Laboratory,
    /// All packages, with the feature.
    Everything,
}

impl BuildSet {
    /// Arguments for cargo.
    fn packages(self) -> Vec<&'static str> {
        match self {
            BuildSet::Product => product(),
            BuildSet::Laboratory => {
                LABORATORY.iter().flat_map(|package| ["--package", package]).collect()
            }
            BuildSet::Everything => vec!["--workspace"],
        }
    }
}

fn build(build_set: BuildSet) -> Result<Vec<Binary>, Failure> {
    println!("== building the tests");
    let begun = Instant::now();
    let mut arguments = build_set.packages();
    arguments.push("--tests");
    let binaries = binaries::build(&arguments)?;
    build_preloaded()?;
    println!("built in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(binaries)
}

/// Builds the shared libraries of `kumi run`, which cargo builds for no test. The tests of
/// `kumi/run` ask for the same build, and find it done; the tour runs a server with them.
fn build_preloaded() -> Result<(), Failure> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--package", "kumihimo-run", "--package", "kumihimo-preload"]);
    let status = cargo.stdin(Stdio::null()).status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("the libraries of kumi run do not build: {status}").into())
}

/// Builds the test programs of the product with its default features.
fn build_product() -> Result<Vec<Binary>, Failure> {
    binaries::build(&[&product()[..], &["--tests"]].concat())
}

/// Arguments for cargo that select all packages except the laboratory's.
pub fn product() -> Vec<&'static str> {
    let excluded = LABORATORY.iter().flat_map(|package| ["--exclude", package]);
    std::iter::once("--workspace").chain(excluded).collect()
}

/// Runs all jobs and prints the slowest tests.
pub fn run_jobs(mut jobs: Vec<Job>, report: &mut Report) {
    let begun = Instant::now();
    // A stable sort: the other jobs keep the order of the plan.
    jobs.sort_by_key(|job| {
        LONG.iter().position(|long| *long == job.binary.name()).unwrap_or(LONG.len())
    });
    let (alone, beside): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.alone);
    let results = Results { report, slowest: Vec::new() };
    let shared = Shared { number: AtomicUsize::new(0), results: Mutex::new(results) };
    let queue = Mutex::new(VecDeque::from(beside));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| lane(&queue, &shared));
        }
    });
    lane(&Mutex::new(VecDeque::from(alone)), &shared);
    let Results { mut slowest, .. } = shared.results.into_inner().expect("no lane panics");
    slowest.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("\n== all ran in {:.0} s; the slowest tests:", begun.elapsed().as_secs_f64());
    for (seconds, test) in slowest.iter().take(15) {
        println!("{seconds:6.1} s  {test}");
    }
}

/// State shared by the lanes.
struct Shared<'a> {
    /// Number of the next job, which is part of its file names.
    number: AtomicUsize,
    results: Mutex<Results<'a>>,
}

struct Results<'a> {
    report: &'a mut Report,
    /// Tests with their durations in seconds.
    slowest: Vec<(f64, String)>,
}

/// Runs jobs from the queue until it is empty.
fn lane(queue: &Mutex<VecDeque<Job>>, shared: &Shared<'_>) {
    loop {
        let Some(job) = queue.lock().expect("no lane panics").pop_front() else { return };
        let (name, suite) = (job.binary.name(), job.suite.clone());
        let ended = run::run(job, shared.number.fetch_add(1, Relaxed));
        let mut results = shared.results.lock().expect("no lane panics");
        match ended {
            Ok(ended) => {
                ended.print();
                results.report.suite(&suite, ended.counts(), ended.time);
                if ended.failed > 0 {
                    results.report.failure(ended.failed_briefly());
                }
                let slow = ended.slowest.into_iter();
                results.slowest.extend(slow.map(|(time, test)| (time, format!("{name} {test}"))));
            }
            Err(error) => {
                println!("{name}: {error}");
                results.report.failure(format!("{name}: {error}"));
                let failed = Counts { failed: 1, ..Counts::default() };
                results.report.suite(&suite, failed, Duration::ZERO);
            }
        }
    }
}

/// Rows that this machine supports. The others are reported as skipped.
fn allowed_rows(report: &mut Report) -> Result<Vec<usize>, Failure> {
    let refused = refused_sources(&workspace::target().join("debug/kumi"))?;
    let mut rows = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        match why_not(number, &refused) {
            None => rows.push(number),
            Some(why) => report.skip(&format!("row {number}: {}", row.name(Designs::All)), why),
        }
    }
    Ok(rows)
}

/// The requested row; without a request, the commit's row or the next one that the machine
/// supports.
fn one_row(wanted: Option<u64>, designs: Designs) -> Result<Vec<usize>, Failure> {
    let refused = refused_sources(&workspace::target().join("debug/kumi"))?;
    let Some(row) = wanted else {
        let first = matrix::of_commit(&head());
        let mut rows = (first..first + ROWS.len()).map(|n| n % ROWS.len());
        // The last rows need no features of the machine.
        return Ok(rows.find(|&n| why_not(n, &refused).is_none()).into_iter().collect());
    };
    let row = usize::try_from(row)?;
    match why_not(row, &refused) {
        None => Ok(vec![row]),
        Some(why) => {
            let name = ROWS[row].name(designs);
            Err(format!("row {row} ({name}) cannot run here: {why}").into())
        }
    }
}

/// Reason why the event source of a row is unavailable, if it is.
fn why_not(number: usize, refused: &[(String, String)]) -> Option<&str> {
    let source = ROWS[number].events_name();
    refused.iter().find(|(refused, _)| refused == source).map(|(_, why)| why.as_str())
}

/// Hash of the checked-out commit; empty outside of a repository.
fn head() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(workspace::root());
    git.output().map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into())
}

/// Event sources that are unavailable on this machine, with `kumi doctor`'s reasons.
pub fn refused_sources(kumi: &Path) -> Result<Vec<(String, String)>, Failure> {
    let output = Command::new(kumi).arg("doctor").output();
    let output = output.map_err(|e| format!("{}: {e}", kumi.display()))?;
    Ok(refusals(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses lines such as `events: bpf    no: it needs CAP_BPF`.
fn refusals(doctor: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let (source, rest) = line.strip_prefix("events: ")?.split_once(' ')?;
        let why = rest.trim_start().strip_prefix("no: ")?;
        Some((source.to_owned(), why.to_owned()))
    };
    doctor.lines().filter_map(line).collect()
}

/// Prints the tests of each job.
fn list(jobs: &[Job]) -> Result<ExitCode, Failure> {
    for job in jobs {
        for test in binaries::tests(&job.binary, &job.arguments)? {
            println!("{}\t{}\t{test}", job.suite, job.binary.name());
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package that enables the feature and is missing in the list would enable it for the
    /// product's build as well.
    #[test]
    fn laboratory_lists_the_directory_lab_and_every_package_with_the_feature() {
        let mut in_lab = Vec::new();
        for room in ["crates", "examples", "lab", "servers", "tests", "tools"] {
            let path = crate::workspace::root().join(room);
            let below = std::fs::read_dir(&path).expect("a folder").flatten().map(|e| e.path());
            for folder in below.chain([path]) {
                let Ok(text) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
                let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
                let name = name.expect("a package").trim_end_matches('"').to_owned();
                let turns_on = |line: &str| {
                    line.split_once("features = [").is_some_and(|(_, all)| all.contains("\"lab\""))
                };
                let is_listed = LABORATORY.contains(&name.as_str());
                assert!(is_listed || !text.lines().any(turns_on), "{name}");
                if room == "lab" {
                    in_lab.push(name);
                }
            }
        }
        in_lab.sort();
        assert_eq!(in_lab, LABORATORY);
    }

    #[test]
    fn refused_sources_are_read_from_doctor() {
        let said = "cores: 2\nevents: bpf     no: it needs CAP_BPF\nevents: perf    yes: 2 us\n";
        assert_eq!(refusals(said), [("bpf".to_owned(), "it needs CAP_BPF".to_owned())]);
    }
}
