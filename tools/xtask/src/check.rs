//! `cargo xtask lint` and `cargo xtask check`: requirements for a change before it is submitted.
//!
//! `lint` has the checks that take a few minutes: format, lints, prose, layers, documentation, and
//! compilation with the minimum Rust version and for other targets. `check` adds lints and
//! documentation with other features, the book, scripts, licences, packages, loom models, Miri and
//! sanitizers, then runs every suite with the whole matrix of fallbacks.

pub mod aarch64;
pub mod fuzz;
pub mod msrv;
pub mod packaging;
pub mod portable;
pub mod stress;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::documents::{doc_examples, docs};
use crate::report::Report;
use crate::sources::{layers, prose};
use crate::tools::Tool;
use crate::workspace::{self, program};
use crate::{Failure, cargo_test, programs, test};

/// Checks licences, sources and advisories of the dependencies.
const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", options: &[] };

/// Scripts that shellcheck checks.
const SCRIPTS: [&str; 10] = [
    "scripts/bpf-object",
    "scripts/chroots",
    "scripts/figures",
    "scripts/install",
    "scripts/layers",
    "scripts/lib.sh",
    "scripts/prose",
    "scripts/sanitize",
    "scripts/setup",
    "scripts/soak",
];

/// Runs the checks that CI runs before the tests.
pub fn lint() -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    lints(&mut report)?;
    Ok(report.finish())
}

/// Runs all checks.
pub fn run() -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    lints(&mut report)?;
    thorough_lints(&mut report)?;
    docs::book(&mut report)?;
    portable::test_musl(&mut report)?;
    scripts(&mut report)?;
    licences(&mut report)?;
    packaging::check(&mut report)?;
    models(&mut report)?;
    miri(&mut report)?;
    sanitizers(&mut report)?;
    frame_pointers(&mut report)?;
    test::run_matrix(&mut report)?;
    programs::check(&mut report)?;
    println!("\n== summary");
    Ok(report.finish())
}

fn lints(report: &mut Report) -> Result<(), Failure> {
    if works(&["fmt", "--version"]) {
        report.run_step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    } else {
        report.skip("format", "no rustfmt: rustup component add rustfmt");
    }
    if has_clippy() {
        let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        report.run_step("lints", &mut cargo(&all))?;
    } else {
        report.skip("lints", NO_CLIPPY);
    }
    prose::check(report)?;
    layers::check(report)?;
    // Without the laboratory's features, as docs.rs builds it.
    let mut product = cargo(&["doc", "--no-deps"]);
    product.args(test::product()).env("RUSTDOCFLAGS", "-D warnings");
    report.run_step("documentation builds", &mut product)?;
    doc_examples::check(report)?;
    msrv::check_product(report)?;
    portable::check_all(report)
}

/// What [`lints`] leaves out because each build of another set of features takes minutes and finds
/// hardly anything more.
fn thorough_lints(report: &mut Report) -> Result<(), Failure> {
    if has_clippy() {
        let mut product = cargo(&["clippy"]);
        product.args(test::product()).args(["--all-targets", "--", "-D", "warnings"]);
        report.run_step("lints without the feature lab", &mut product)?;
        let tracing = ["clippy", "-p", "kumihimo-runtime", "-p", "kumihimo", "--all-targets"];
        let mut tracing = cargo(&tracing);
        tracing.args(["--features", "tracing", "--", "-D", "warnings"]);
        report.run_step("lints with tracing", &mut tracing)?;
    } else {
        report.skip("lints with other features", NO_CLIPPY);
    }
    let mut docs = cargo(&["doc", "--workspace", "--no-deps"]);
    report.run_step(
        "documentation builds with the feature lab",
        docs.env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    msrv::check_all(report)
}

const NO_CLIPPY: &str = "no clippy: rustup component add clippy";

fn has_clippy() -> bool {
    works(&["clippy", "--version"])
}

fn scripts(report: &mut Report) -> Result<(), Failure> {
    if quiet(Command::new("shellcheck").arg("--version")) {
        let mut shellcheck = program("shellcheck");
        shellcheck.arg("-x").args(SCRIPTS).arg(".ci/run").args(programs::scripts()?);
        report.run_step("scripts", &mut shellcheck)?;
    } else {
        report.skip("scripts", "no shellcheck: apt-get install shellcheck");
    }
    // The script prints why it cannot compare, and exits with 0 then.
    let output = program("scripts/bpf-object").arg("--check").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().find_map(|line| line.strip_prefix("bpf-object: skipped: ")) {
        Some(why) => report.skip("BPF object", why),
        None => report.run_step("BPF object", program("scripts/bpf-object").arg("--check"))?,
    }
    Ok(())
}

fn licences(report: &mut Report) -> Result<(), Failure> {
    let Some(deny) = CARGO_DENY.path() else {
        report.skip("licences", "cargo-deny could not be built (see above)");
        report.skip("advisories", "cargo-deny could not be built (see above)");
        return Ok(());
    };
    // The rivals are not members of the workspace.
    let mut manifests = vec![PathBuf::from("Cargo.toml")];
    manifests.extend(manifests_below(&workspace::root().join("lab/rivals"))?);
    for manifest in manifests {
        let mut command = program(&deny.to_string_lossy());
        command.arg("--manifest-path").arg(&manifest);
        command.args(["--config", "deny.toml", "check", "licenses", "bans", "sources"]);
        report.run_step(&format!("licences of {}", manifest.display()), &mut command)?;
    }
    // The advisory database is a git repository, which may be unreachable on machines with access
    // to package registries only.
    let mut fetch = program("timeout");
    if quiet(fetch.arg("120").arg(&deny).args(["fetch", "db"])) {
        let mut advisories = program(&deny.to_string_lossy());
        report
            .run_step("advisories", advisories.args(["check", "--disable-fetch", "advisories"]))?;
    } else {
        report.skip("advisories", "the advisory database could not be fetched");
    }
    Ok(())
}

/// Runs the models: with `--cfg loom`, a crate's unit tests and its `tests/loom.rs` contain nothing
/// else.
fn models(report: &mut Report) -> Result<(), Failure> {
    for manifest in manifests_below(&workspace::root().join("crates"))? {
        let text = std::fs::read_to_string(&manifest)?;
        if !text.lines().any(|line| line.starts_with("loom.workspace")) {
            continue;
        }
        let folder = manifest.parent().unwrap_or(Path::new("."));
        let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
        let name = name.and_then(|rest| rest.split('"').next()).unwrap_or("?");
        let mut command = cargo(&["test", "-p", name, "--release", "--lib"]);
        if folder.join("tests/loom.rs").exists() {
            command.args(["--test", "loom"]);
        }
        // Designs that exist only for comparison have models, too.
        if text.lines().any(|line| line.starts_with("lab = ")) {
            command.args(["--features", "lab"]);
        }
        command.arg("--target-dir").arg(workspace::target().join("loom"));
        cargo_test::suite(report, &format!("loom {name}"), command.env("RUSTFLAGS", "--cfg loom"))?;
    }
    Ok(())
}

/// Runs the queues under Miri. Their unsafe code neither switches stacks nor makes system calls.
fn miri(report: &mut Report) -> Result<(), Failure> {
    // Miri interprets std from its sources (component rust-src), which it builds once.
    if !quiet(Command::new("cargo").args(["+nightly", "miri", "setup"])) {
        report.skip("miri kumihimo-queue", "no Miri: rustup +nightly component add miri rust-src");
        return Ok(());
    }
    let mut command = program("cargo");
    command.args(["+nightly", "miri", "test", "-p", "kumihimo-queue", "--lib", "--test", "stress"]);
    command.args(["--features", "kumihimo-queue/lab"]);
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    command.arg("--target-dir").arg(workspace::target().join("miri"));
    cargo_test::suite(report, "miri kumihimo-queue", &mut command)
}

fn sanitizers(report: &mut Report) -> Result<(), Failure> {
    for sanitizer in ["address", "thread"] {
        let name = format!("{sanitizer}-sanitizer");
        if quiet(program("scripts/sanitize").args([sanitizer, "--probe"])) {
            cargo_test::suite(report, &name, program("scripts/sanitize").arg(sanitizer))?;
        } else {
            report.skip(&name, "this toolchain has no runtime for it here");
        }
    }
    let name = "thread-sanitizer with std";
    if quiet(program("scripts/sanitize").args(["thread-std", "--probe"])) {
        cargo_test::suite(report, name, program("scripts/sanitize").arg("thread-std"))?;
    } else {
        report.skip(name, "no sources of std: rustup +nightly component add rust-src");
    }
    Ok(())
}

/// perf(1) by frame pointers, as `perf record -g` has it, on a program that was built with them.
fn frame_pointers(report: &mut Report) -> Result<(), Failure> {
    let target = workspace::target().join("frame-pointers");
    let mut perf = cargo(&["test", "-p", "kumihimo-tests", "--test", "perf", "--target-dir"]);
    perf.arg(target).env("RUSTFLAGS", "-C force-frame-pointers=yes");
    cargo_test::suite(report, "perf by frame pointers", perf.env("KUMI_TEST_CALL_GRAPH", "fp"))
}

/// Manifests of the packages in `folder`, in the order of their names.
fn manifests_below(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let manifests = entries.flatten().map(|entry| entry.path().join("Cargo.toml"));
    let mut manifests: Vec<PathBuf> = manifests.filter(|manifest| manifest.exists()).collect();
    manifests.sort();
    Ok(manifests)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(arguments);
    cargo
}

fn works(arguments: &[&str]) -> bool {
    quiet(&mut cargo(arguments))
}

/// Returns whether a command succeeds. Its output is discarded.
fn quiet(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
