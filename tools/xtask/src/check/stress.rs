//! `cargo xtask stress`: runs every suite repeatedly, in random order, on a busy machine.
//!
//! Timing-dependent defects appear when threads lose their cores at random moments for long. Each
//! run gets a random seed. The summary names the tests, seeds and logs of failed runs.

mod load;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::report::Report;
use crate::test::binaries::{self, Binary};
use crate::test::plan::Job;
use crate::test::run::{self, Ended};
pub use load::Burn;
use load::Load;

#[derive(clap::Args)]
pub struct Args {
    /// Duration in minutes; the suite that is running at the end is completed
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Busy processes for each core
    #[arg(long, default_value_t = 4)]
    load: usize,
    /// Seed of the order and of the seeds of all runs
    #[arg(long)]
    seed: Option<u64>,
    /// Run only programs whose `package/target` contains one of these
    only: Vec<String>,
}

/// Builds all suites, runs them beside the load, and reports failures.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut suites = binaries::build(&["--workspace", "--tests"])?;
    if !args.only.is_empty() {
        suites.retain(|suite| args.only.iter().any(|part| suite.name().contains(part)));
    }
    if suites.is_empty() {
        return Err("no such suite".into());
    }
    let seed = args.seed.unwrap_or_else(random_number);
    let busy = std::thread::available_parallelism()?.get() * args.load;
    let minutes = args.minutes;
    println!("{} suites, {busy} busy processes, {minutes} minutes, seed {seed}", suites.len());
    let load = Load::start(busy)?;
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let outcome = run_until(end, &suites, seed);
    drop(load);
    let report = outcome?;
    println!("\n== summary");
    Ok(report.finish())
}

/// Runs all suites in random order, again and again.
fn run_until(end: Instant, suites: &[Binary], seed: u64) -> Result<Report, Failure> {
    let mut random = Random(seed);
    let mut report = Report::default();
    let mut queue: Vec<usize> = Vec::new();
    for number in 0.. {
        if Instant::now() >= end {
            break;
        }
        if queue.is_empty() {
            queue = (0..suites.len()).collect();
        }
        let binary = suites[queue.swap_remove(random.below(queue.len()))].clone();
        let seed = random.number();
        let job = Job {
            suite: binary.package.clone(),
            environment: vec![("KUMI_SEED".to_owned(), seed.to_string())],
            arguments: Vec::new(),
            alone: false,
            is_brief: false,
            binary,
        };
        let ended = run::run(job, number)?;
        ended.print();
        report.suite(&ended.job.suite, ended.counts(), ended.time);
        if ended.failed > 0 {
            report.failure(name(&ended, seed));
        } else {
            std::fs::remove_file(&ended.log)?;
        }
    }
    Ok(report)
}

/// Program, tests, seed and log of a failed run.
fn name(ended: &Ended, seed: u64) -> String {
    let (program, tests) = (ended.job.binary.name(), ended.failed_tests.join(", "));
    format!("{program}: {tests}: KUMI_SEED={seed}: {}", ended.log.display())
}

/// A number that differs between processes.
fn random_number() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.number() % n as u64) as usize
    }
}
