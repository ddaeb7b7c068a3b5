//! Checks the minimum Rust version that Cargo.toml states.
//!
//! - No dependency requires a newer one.
//! - The published crates and `kumi` compile with that toolchain, which rustup installs if
//!   necessary; for `check`, all targets of the workspace do. Without rustup or a network, this
//!   step is skipped. Then clippy's lint on newer API of the standard library replaces it; the lint
//!   does not detect newer language features.

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::check::packaging;
use crate::report::Report;
use crate::{Failure, workspace};

/// The version in Cargo.toml, for example `1.88`.
const STATED: &str = env!("CARGO_PKG_RUST_VERSION");

/// Prints `N passed, N failed, N skipped` last.
pub fn run() -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    check_product(&mut report)?;
    check_all(&mut report)?;
    Ok(report.finish())
}

/// Adds the steps for what users build.
pub fn check_product(report: &mut Report) -> Result<(), Failure> {
    dependencies(report)?;
    let crates = packaging::publishable()?;
    let crates = crates.iter().map(String::as_str).chain(["kumi"]);
    let packages: Vec<&str> = crates.flat_map(|name| ["--package", name]).collect();
    if compile(report, "compiling with Rust", &packages)? { Ok(()) } else { lint(report) }
}

/// Adds the step for all targets of the workspace.
pub fn check_all(report: &mut Report) -> Result<(), Failure> {
    compile(report, "compiling everything with Rust", &["--workspace", "--all-targets"]).map(drop)
}

/// Compares the stated version with those of all dependencies on this platform.
fn dependencies(report: &mut Report) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut ask = workspace::cargo();
    ask.args(["metadata", "--format-version", "1", "--locked"]);
    ask.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = ask.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", output.status).into());
    }
    let metadata = serde_json::from_slice(&output.stdout)?;
    let newer = newer(&metadata);
    for (name, version) in &newer {
        println!("msrv: {name} needs Rust {version}, Cargo.toml states {STATED}");
    }
    report.step("Rust versions of dependencies", newer.is_empty(), begun.elapsed());
    Ok(())
}

/// Adds the step `what`. Returns false if there is no toolchain of the stated version.
fn compile(report: &mut Report, what: &str, packages: &[&str]) -> Result<bool, Failure> {
    let name = format!("{what} {STATED}");
    let mut check = match toolchain()? {
        Ok(Toolchain::Own) => workspace::cargo(),
        Ok(Toolchain::Rustup) => {
            let mut rustup = workspace::program("rustup");
            rustup.args(["run", STATED, "cargo"]);
            rustup
        }
        Err(why) => {
            report.skip(&name, &why);
            return Ok(false);
        }
    };
    check.arg("check").args(packages).args(["--locked", "--target-dir"]);
    check.arg(workspace::target().join("msrv"));
    report.run_step(&name, &mut check)?;
    Ok(true)
}

fn lint(report: &mut Report) -> Result<(), Failure> {
    let mut clippy = workspace::cargo();
    if !clippy.args(["clippy", "--version"]).stdout(Stdio::null()).status()?.success() {
        let name = "newer API of the standard library";
        report.skip(name, "no clippy: rustup component add clippy");
        return Ok(());
    }
    let mut clippy = workspace::cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--locked", "--"]);
    clippy.args(["-D", "clippy::incompatible_msrv"]);
    report.run_step("newer API of the standard library", &mut clippy)
}

/// The way to run the stated toolchain.
enum Toolchain {
    /// The toolchain that runs this program.
    Own,
    /// `rustup run`.
    Rustup,
}

/// Finds or installs the stated toolchain. The inner error is the reason if there is none.
fn toolchain() -> Result<Result<Toolchain, String>, Failure> {
    let own = Command::new("rustc").arg("--version").output()?;
    let own = String::from_utf8_lossy(&own.stdout).split(' ').nth(1).and_then(parse);
    if own.is_some() && own.map(series) == parse(STATED).map(series) {
        return Ok(Ok(Toolchain::Own));
    }
    let Ok(list) = Command::new("rustup").args(["toolchain", "list"]).output() else {
        return Ok(Err("no rustup to install a toolchain with".to_owned()));
    };
    if is_installed(&String::from_utf8_lossy(&list.stdout)) {
        return Ok(Ok(Toolchain::Rustup));
    }
    println!("msrv: installing Rust {STATED} by rustup");
    let arguments = ["toolchain", "install", STATED, "--profile", "minimal", "--no-self-update"];
    let installed = Command::new("rustup").args(arguments).output()?;
    if installed.status.success() {
        return Ok(Ok(Toolchain::Rustup));
    }
    let complaints = String::from_utf8_lossy(&installed.stderr);
    let why =
        complaints.lines().find(|line| line.starts_with("error")).unwrap_or("it printed no error");
    Ok(Err(format!("rustup could not install Rust {STATED}: {why}")))
}

/// Returns whether `rustup toolchain list` contains the stated version.
fn is_installed(list: &str) -> bool {
    let mut versions = list.lines().filter_map(|line| parse(line.split_once('-')?.0));
    versions.any(|version| Some(version) == parse(STATED))
}

/// Packages of `cargo metadata` that require a newer version than this project.
fn newer(metadata: &Value) -> Vec<(&str, &str)> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let stated = packages
        .iter()
        .filter_map(|package| Some((package["name"].as_str()?, package["rust_version"].as_str()?)));
    stated.filter(|(_, version)| parse(version) > parse(STATED)).collect()
}

/// Major, minor and patch number. A missing patch number is 0.
fn parse(version: &str) -> Option<[u32; 3]> {
    let mut numbers = [0; 3];
    let mut parts = version.split('.');
    for number in &mut numbers {
        *number = match parts.next() {
            Some(part) => part.parse().ok()?,
            None => 0,
        };
    }
    parts.next().is_none().then_some(numbers)
}

/// Major and minor number.
fn series([major, minor, _]: [u32; 3]) -> (u32, u32) {
    (major, minor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(parse("1.9") < parse("1.10"));
        assert_eq!(parse("1.88"), parse("1.88.0"));
        assert!(parse("1.88.1") > parse("1.88"));
        for wrong in ["", "stable", "1.88.0.1", "1.89.0-beta.1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dependency_that_requires_a_newer_version_is_named() {
        let packages = json!([
            { "name": "old", "rust_version": "1.56.0" },
            { "name": "same", "rust_version": STATED },
            { "name": "silent", "rust_version": null },
            { "name": "new", "rust_version": "1.999" },
        ]);
        assert_eq!(newer(&json!({ "packages": packages })), [("new", "1.999")]);
    }

    #[test]
    fn installed_toolchain_is_recognised_by_its_version() {
        assert!(is_installed(&format!(
            "stable-x86_64-unknown-linux-gnu (active)\n{STATED}-x86_64-unknown-linux-gnu\n"
        )));
        assert!(is_installed(&format!("{STATED}.0-x86_64-unknown-linux-gnu\n")));
        for others in [
            "",
            "stable-x86_64-unknown-linux-gnu\n",
            "1.1-x86_64-unknown-linux-gnu\n",
            "no installed toolchains\n",
        ] {
            assert!(!is_installed(others), "{others:?}");
        }
    }
}
