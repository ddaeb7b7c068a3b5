//! Checks that the crate `kumihimo` compiles for other targets, and runs the unit tests on musl.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::report::Report;
use crate::{Failure, cargo_test, workspace};

/// Targets on which `kumihimo` has to compile.
const TARGETS: [&str; 3] =
    ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "aarch64-apple-darwin"];

/// The target whose executables run here although its C library is another one.
const MUSL: &str = "x86_64-unknown-linux-musl";

/// Crates whose unit tests have to pass there.
const TESTED: [&str; 16] = [
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
    /// Targets to check; by default all that have to compile
    targets: Vec<String>,
    /// Do not let rustup install a missing standard library
    #[arg(long)]
    offline: bool,
    /// Leave out the unit tests on musl
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
        report.skip(&name, "rustup brings no standard library for it here");
        return Ok(());
    }
    let mut cargo = workspace::cargo();
    report.run_step(&name, cargo.args(["check", "-p", "kumihimo", "--target", target]))
}

/// Builds and runs the unit tests on musl, whose executables run on this machine's processor.
pub fn test_musl(report: &mut Report) -> Result<(), Failure> {
    let name = format!("unit tests on {MUSL}");
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        report.skip(&name, "its executables do not run on this machine");
        return Ok(());
    }
    if !has_std(MUSL, false)? {
        report.skip(&name, "rustup brings no standard library for it here");
        return Ok(());
    }
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--lib", "--no-fail-fast", "--target", MUSL]);
    cargo.args(TESTED.iter().flat_map(|name| ["-p", name]));
    cargo_test::suite(report, &name, &mut cargo)
}

/// Whether the standard library of `target` is installed, after an attempt to install it.
fn has_std(target: &str, offline: bool) -> Result<bool, Failure> {
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
        return Err(format!("rustc does not know the target {target}").into());
    }
    let directory = String::from_utf8(printed.stdout)?;
    Ok(has_core(Path::new(directory.trim())))
}

/// Whether a target's library directory holds libcore, and not only the linker's own files.
fn has_core(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|files| {
        files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_library_of_this_machine_is_found() {
        assert!(
            is_installed(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
                .expect("rustc runs")
        );
        assert!(is_installed("no-such-target").is_err());
    }

    #[test]
    fn a_directory_without_libcore_is_no_standard_library() {
        assert!(!has_core(Path::new("/nonexistent")));
        assert!(!has_core(Path::new("/proc/self")));
    }
}
