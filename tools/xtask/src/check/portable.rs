//! Checks that the crate `kumihimo` compiles for other targets, and runs the unit tests on musl.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::report::Report;
use crate::{Failure, cargo_test, workspace};

/// Targets for which `kumihimo` must compile.
const TARGETS: [&str; 3] =
    ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "aarch64-apple-darwin"];

/// Target with another C library whose executables run on this machine.
const MUSL: &str = "x86_64-unknown-linux-musl";

/// Crates whose unit tests must pass with another C library, or for another processor.
pub const TESTED: [&str; 16] = [
    "kumihimo",
    "kumihimo-arbiter",
    "kumihimo-arch",
    "kumihimo-backtrace",
    "kumihimo-batch",
    "kumihimo-config",
    "kumihimo-events",
    "kumihimo-gate",
    "kumihimo-io",
    "kumihimo-machine",
    "kumihimo-policy",
    "kumihimo-queue",
    "kumihimo-resource",
    "kumihimo-runtime",
    "kumihimo-sync",
    "kumihimo-trace",
];

#[derive(clap::Args)]
pub struct Args {
    /// Targets to check; by default all that must compile
    targets: Vec<String>,
    /// Do not install a missing standard library with rustup
    #[arg(long)]
    offline: bool,
    /// Skip the unit tests on musl
    #[arg(long)]
    check_only: bool,
}

/// Runs all steps. The exit code is 1 if a step failed.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let targets: Vec<&str> = match args.targets.as_slice() {
        [] => TARGETS.to_vec(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    let mut report = Report::default();
    for target in targets {
        check(&mut report, target, args.offline)?;
        if target == MUSL && !args.check_only {
            test_musl(&mut report)?;
        }
    }
    Ok(report.finish())
}

/// Adds the check of each target to `report`.
pub fn check_all(report: &mut Report) -> Result<(), Failure> {
    TARGETS.iter().try_for_each(|target| check(report, target, false))
}

fn check(report: &mut Report, target: &str, offline: bool) -> Result<(), Failure> {
    let name = format!("kumihimo compiles for {target}");
    if !has_std(target, offline)? {
        report.skip(&name, "its standard library cannot be installed with rustup");
        return Ok(());
    }
    let mut cargo = workspace::cargo();
    let all = ["check", "-p", "kumihimo", "--features", "hyper", "--target", target];
    report.run_step(&name, cargo.args(all))
}

/// Builds and runs the unit tests on musl, whose executables run on this machine's processor.
pub fn test_musl(report: &mut Report) -> Result<(), Failure> {
    let name = format!("unit tests on {MUSL}");
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        report.skip(&name, "its executables do not run on this machine");
        return Ok(());
    }
    if !has_std(MUSL, false)? {
        report.skip(&name, "its standard library cannot be installed with rustup");
        return Ok(());
    }
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--lib", "--no-fail-fast", "--target", MUSL]);
    cargo.args(TESTED.iter().flat_map(|name| ["-p", name]));
    cargo_test::suite(report, &name, &mut cargo)
}

/// Installs the standard library of `target` if necessary. Returns whether it is available.
pub fn has_std(target: &str, offline: bool) -> Result<bool, Failure> {
    if is_installed(target)? {
        return Ok(true);
    }
    if offline {
        return Ok(false);
    }
    let added =
        Command::new("rustup").args(["target", "add", target]).stdin(Stdio::null()).status();
    Ok(added.is_ok_and(|status| status.success()) && is_installed(target)?)
}

fn is_installed(target: &str) -> Result<bool, Failure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed =
        Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output()?;
    if !printed.status.success() {
        return Err(format!("rustc does not support the target {target}").into());
    }
    let directory = String::from_utf8(printed.stdout)?;
    Ok(has_core(Path::new(directory.trim())))
}

/// Returns whether a target's library directory contains libcore, and not only the linker's files.
fn has_core(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|files| {
        files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_library_of_this_machine_is_found() {
        assert!(
            is_installed(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
                .expect("rustc runs")
        );
        assert!(is_installed("no-such-target").is_err());
    }

    #[test]
    fn directory_without_libcore_has_no_standard_library() {
        assert!(!has_core(Path::new("/nonexistent")));
        assert!(!has_core(Path::new("/proc/self")));
    }
}
