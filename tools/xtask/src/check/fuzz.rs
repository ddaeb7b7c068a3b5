//! `cargo xtask fuzz`: runs the fuzzers, minimises their corpora, and measures what these cover.
//!
//! The targets are functions of `tests/fuzzed`, and the programs lie in `fuzz/`, a workspace of its
//! own that needs cargo-fuzz and a nightly compiler. The suites replay the corpora without either.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;

use crate::Failure;
use crate::report::Report;
use crate::tools::Tool;
use crate::workspace::{self, program};

const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2", options: &[] };

/// Options of every run. An input that takes longer, or more memory, is a failure.
const LIMITS: [&str; 4] =
    ["-timeout=20", "-rss_limit_mb=2048", "-max_len=8192", "-print_final_stats=1"];

#[derive(Parser)]
pub struct Args {
    /// One target; all of them by default
    #[arg(long)]
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// Sanitizer: none, or address
    #[arg(long, default_value = "none")]
    sanitizer: String,
    /// Afterwards, minimise the corpora into tests/fuzzed/corpus
    #[arg(long)]
    minimise: bool,
    /// Only measure the lines that the committed corpora cover
    #[arg(long)]
    coverage: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    if args.coverage {
        coverage(&mut report)?;
    } else if !program("cargo")
        .args(["+nightly", "--version"])
        .stdout(Stdio::null())
        .status()?
        .success()
    {
        report.skip("fuzzers", "no nightly compiler: rustup toolchain install nightly");
    } else if let Some(cargo_fuzz) = CARGO_FUZZ.path() {
        fuzz(args, &cargo_fuzz, &mut report)?;
    } else {
        report.skip("fuzzers", "cargo-fuzz could not be built (see above)");
    }
    Ok(report.finish())
}

fn fuzz(args: &Args, cargo_fuzz: &Path, report: &mut Report) -> Result<(), Failure> {
    let folder = workspace::target().join("fuzz/corpus");
    report.run_step("unpack the corpora", corpus("unpack").arg(&folder))?;
    let logs = workspace::target().join("fuzz");
    fs::create_dir_all(&logs)?;
    let targets = match &args.target {
        Some(target) => vec![target.clone()],
        None => targets()?,
    };
    let mut lines = Vec::new();
    for target in &targets {
        let log = logs.join(format!("{target}.log"));
        println!("== {target}: {} s, {}", args.seconds, log.display());
        let mut run = in_fuzz(cargo_fuzz, &["run", target, "--sanitizer", &args.sanitizer]);
        run.arg(folder.join(target))
            .arg("--")
            .args(LIMITS)
            .arg(format!("-max_total_time={}", args.seconds));
        let out = File::create(&log)?;
        run.stdout(out.try_clone()?).stderr(out);
        report.run_step(target, &mut run)?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let executions = statistic(&text, "number_of_executed_units").unwrap_or(0);
        lines.push(format!("{target}: {executions} executions"));
        if args.minimise {
            let mut cmin = in_fuzz(cargo_fuzz, &["cmin", target, "--sanitizer", &args.sanitizer]);
            cmin.arg(folder.join(target)).args(["--", "-timeout=20"]);
            report.run_step(&format!("minimise {target}"), &mut cmin)?;
        }
    }
    if args.minimise {
        report.run_step("pack the corpora", corpus("pack").arg(&folder))?;
    }
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// A command of cargo-fuzz, in the root.
fn in_fuzz(cargo_fuzz: &Path, arguments: &[&str]) -> Command {
    let mut command = program("rustup");
    command.args(["run", "nightly"]).arg(cargo_fuzz).arg("fuzz").args(arguments);
    command
}

/// The program that packs and unpacks corpora.
fn corpus(what: &str) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--quiet", "-p", "kumihimo-fuzzed", "--example", "corpus", "--", what]);
    cargo
}

/// All targets, by the names of their programs.
fn targets() -> Result<Vec<String>, Failure> {
    let folder = workspace::root().join("fuzz/fuzz_targets");
    let names = fs::read_dir(folder)?.map(|entry| {
        let path = entry?.path();
        Ok(path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
    });
    let mut names: Vec<String> = names.collect::<std::io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// A number of libFuzzer's final statistics.
fn statistic(log: &str, name: &str) -> Option<u64> {
    let line = log.lines().rev().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
    line?.strip_prefix(':')?.trim().parse().ok()
}

/// Replays the committed corpora with instrumented code, and reports the lines covered.
fn coverage(report: &mut Report) -> Result<(), Failure> {
    let Some(tools) = llvm_tools() else {
        report.skip("coverage", "no llvm-tools: rustup +nightly component add llvm-tools");
        return Ok(());
    };
    let folder = workspace::target().join("fuzz-coverage");
    let profiles = folder.join("profiles");
    let _ = fs::remove_dir_all(&profiles);
    let mut test = program("cargo");
    test.args(["+nightly", "test", "-p", "kumihimo-fuzzed", "--test", "replay"]);
    test.args(["--test", "regressions", "--target-dir"]).arg(&folder);
    test.env("RUSTFLAGS", "-Cinstrument-coverage");
    test.env("LLVM_PROFILE_FILE", profiles.join("%p.profraw"));
    report.run_step("replay with coverage", &mut test)?;
    let merged = folder.join("merged.profdata");
    let mut merge = program(&tools.join("llvm-profdata").to_string_lossy());
    merge.args(["merge", "--sparse", "-o"]).arg(&merged);
    for profile in fs::read_dir(&profiles)? {
        merge.arg(profile?.path());
    }
    report.run_step("merge the profiles", &mut merge)?;
    let mut show = program(&tools.join("llvm-cov").to_string_lossy());
    show.args(["report", "--instr-profile"]).arg(&merged);
    show.args(["--ignore-filename-regex", r"/rustc/|\.cargo/|/tests/"]);
    for (place, binary) in binaries(&folder.join("debug/deps"))?.iter().enumerate() {
        if place > 0 {
            show.arg("--object");
        }
        show.arg(binary);
    }
    let text = folder.join("report.txt");
    report.run_step("lines covered", show.stdout(File::create(&text)?))?;
    println!("{}", text.display());
    Ok(())
}

/// The programs of the replay.
fn binaries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_test = name.starts_with("replay-") || name.starts_with("regressions-");
        if is_test && path.extension().is_none() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The folder with LLVM's tools of the nightly compiler.
fn llvm_tools() -> Option<PathBuf> {
    let output = program("rustc").args(["+nightly", "--print", "target-libdir"]).output().ok()?;
    let libraries = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let tools = libraries.parent()?.join("bin");
    tools.join("llvm-cov").exists().then_some(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_statistic_of_a_log_is_found() {
        let log = "#1 INITED\nstat::number_of_executed_units: 12\nstat::peak_rss_mb:  40\n";
        assert_eq!(statistic(log, "number_of_executed_units"), Some(12));
        assert_eq!(statistic(log, "peak_rss_mb"), Some(40));
        assert_eq!(statistic(log, "new_units_added"), None);
    }

    #[test]
    fn each_target_has_a_program() {
        let targets = targets().expect("the folder of the programs");
        assert!(targets.len() >= 10 && targets.contains(&"kv_log".to_owned()), "{targets:?}");
    }
}
