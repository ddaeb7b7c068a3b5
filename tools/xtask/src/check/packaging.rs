//! `cargo xtask package`, `deb` and `container`: what is handed to others.
//!
//! - `package` builds every crate that can be published from its package alone, and checks that
//!   each package has a README and both licences. Then it follows the book's first part against the
//!   packages.
//! - `deb` builds the Debian packages `kumi` and `libkumihimo-dev` from what `scripts/install`
//!   installs.
//! - `container` builds the image of `Containerfile`, where a builder runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::Failure;
use crate::report::Report;
use crate::tools::Tool;
use crate::workspace::{self, program};

mod start;

/// Builds Debian packages.
const CARGO_DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0", options: &[] };
/// Finds breaking changes of a public interface.
const CARGO_SEMVER_CHECKS: Tool =
    Tool { name: "cargo-semver-checks", version: "0.51.0", options: &[] };

/// The release whose public interface must stay compatible: its tag.
const BASELINE_TAG: &str = "v0.2.0";
/// The commit that became version 0.2.0 ("capi: state version 0.2.0 in the library too"), for
/// clones without tags.
const BASELINE_COMMIT: &str = "08e65cfaf8a9c7cdd519ef8a893bf6eec97496a5";

/// What every package contains.
const REQUIRED: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Builds every package.
pub fn package() -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    check_packages(&mut report)?;
    Ok(report.finish())
}

/// Adds the packages and the compatibility of the public interface to `report`.
pub fn check(report: &mut Report) -> Result<(), Failure> {
    check_packages(report)?;
    semver(report)
}

fn check_packages(report: &mut Report) -> Result<(), Failure> {
    let crates = publishable()?;
    let begun = Instant::now();
    let mut complete = true;
    for name in &crates {
        let output = workspace::cargo()
            .args(["package", "--list", "--allow-dirty", "-p", name])
            .stderr(Stdio::inherit())
            .output()?;
        let files = String::from_utf8_lossy(&output.stdout).into_owned();
        let files: BTreeSet<&str> = files.lines().collect();
        for missing in REQUIRED.iter().filter(|file| !files.contains(*file)) {
            println!("package: {name} has no {missing}");
            complete = false;
        }
    }
    report.step("contents of packages", complete && !crates.is_empty(), begun.elapsed());
    // `--allow-dirty`: what is checked is the tree as it is.
    let mut packages = workspace::cargo();
    packages.args(["package", "--allow-dirty", "--quiet"]);
    packages.args(crates.iter().flat_map(|name| ["-p", name]));
    report.run_step("packages build alone", &mut packages)?;
    let begun = Instant::now();
    println!("== the book's start against the packages");
    let followed = start::follow(env!("CARGO_PKG_VERSION"));
    match &followed {
        Ok(ran) => println!("start: the steps took {ran:.1?}, builds apart"),
        Err(error) => println!("start: {error}"),
    }
    report.step("the book's start against the packages", followed.is_ok(), begun.elapsed());
    Ok(())
}

/// Names of the workspace's crates that can be published.
pub fn publishable() -> Result<Vec<String>, Failure> {
    let output = workspace::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .stderr(Stdio::inherit())
        .output()?;
    Ok(publishable_of(&serde_json::from_slice(&output.stdout)?))
}

/// `publish` is null where nothing forbids it, and an empty list for `publish = false`.
fn publishable_of(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let can = packages.iter().filter(|package| package["publish"].is_null());
    can.filter_map(|package| package["name"].as_str()).map(str::to_owned).collect()
}

/// Compares the public interface of `kumihimo` with the last release.
fn semver(report: &mut Report) -> Result<(), Failure> {
    const NAME: &str = "compatible with the last release";
    let Some(baseline) = baseline(&workspace::root(), BASELINE_TAG, BASELINE_COMMIT) else {
        let why = format!(
            "this clone has neither the tag {BASELINE_TAG} nor its commit: git fetch --unshallow --tags"
        );
        report.skip(NAME, &why);
        return Ok(());
    };
    let Some(checker) = CARGO_SEMVER_CHECKS.path() else {
        report.skip(NAME, "cargo-semver-checks could not be built (see above)");
        return Ok(());
    };
    println!("== public interface since {baseline}");
    let mut command = program(&checker.to_string_lossy());
    command.args(["semver-checks", "-p", "kumihimo", "--baseline-rev", baseline]);
    report.run_step(NAME, &mut command)
}

/// The revision of the last release in the clone at `root`: the tag, or the commit where it is an
/// ancestor of the tree that is checked. `None` in a shallow clone.
fn baseline<'a>(root: &Path, tag: &'a str, commit: &'a str) -> Option<&'a str> {
    let git = |arguments: &[&str]| quiet(Command::new("git").arg("-C").arg(root).args(arguments));
    if git(&["rev-parse", "--quiet", "--verify", &format!("refs/tags/{tag}^{{commit}}")]) {
        return Some(tag);
    }
    git(&["merge-base", "--is-ancestor", commit, "HEAD"]).then_some(commit)
}

/// Builds the Debian packages, into `target/debian`.
pub fn deb() -> Result<ExitCode, Failure> {
    let Some(cargo_deb) = CARGO_DEB.path() else {
        return Err("cargo-deb could not be built (see above)".into());
    };
    // Where the `assets` of both manifests look.
    let stage = workspace::root().join("target/stage");
    if stage.exists() {
        std::fs::remove_dir_all(&stage)?;
    }
    run(program("scripts/install").arg("/usr").env("DESTDIR", &stage))?;
    let packages = workspace::target().join("debian");
    for package in ["kumi", "kumihimo-capi"] {
        let mut build = program(&cargo_deb.to_string_lossy());
        build.args(["--no-build", "--no-strip", "-p", package, "-o"]).arg(&packages);
        run(&mut build)?;
    }
    println!("deb: packages are in {}", packages.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the image where podman, buildah or docker runs and has the base image, or can fetch it.
/// Elsewhere it prints what is missing and succeeds.
pub fn container() -> Result<ExitCode, Failure> {
    let Some(builder) = ["podman", "buildah", "docker"].into_iter().find(|name| runs(name)) else {
        println!("container: skipped: no podman, buildah or docker runs here");
        return Ok(ExitCode::SUCCESS);
    };
    let image = base_image(&workspace::root().join("Containerfile"))?;
    if !quiet(program(builder).args(["pull", &image])) && !has_image(builder, &image) {
        println!("container: skipped: {builder} cannot fetch {image}");
        return Ok(ExitCode::SUCCESS);
    }
    run(program(builder).args(["build", "-t", "kumihimo", "-f", "Containerfile", "."]))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the builder's service answers, and not only its command exists.
fn runs(builder: &str) -> bool {
    quiet(program(builder).arg("info"))
}

/// Whether the builder has the image already, fetched earlier or imported where there is no
/// network.
fn has_image(builder: &str, image: &str) -> bool {
    let inspect: &[&str] =
        if builder == "buildah" { &["inspect", "--type", "image"] } else { &["image", "inspect"] };
    quiet(program(builder).args(inspect).arg(image))
}

/// The image of the first `FROM` line.
fn base_image(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut images = text.lines().filter_map(|line| line.strip_prefix("FROM "));
    let first = images.next().and_then(|rest| rest.split_whitespace().next());
    Ok(first.ok_or_else(|| format!("{}: no FROM line", file.display()))?.to_owned())
}

fn quiet(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    let name = PathBuf::from(command.get_program());
    Err(format!("{}: {status}", name.display()).into())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use serde_json::json;

    use super::{baseline, publishable_of};

    #[test]
    fn crates_that_forbid_publishing_are_left_out() {
        let metadata = json!({"packages": [
            {"name": "kumihimo", "publish": null},
            {"name": "kumi-lab", "publish": []},
        ]});
        assert_eq!(publishable_of(&metadata), ["kumihimo"]);
    }

    /// Runs git in a repository and returns what it prints.
    fn git(folder: &Path, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(folder).args(["-c", "user.name=test", "-c", "user.email=test@invalid"]);
        let output = git.args(arguments).output().expect("git runs");
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    #[test]
    fn baseline_is_the_tag_or_an_ancestor() {
        let folder = std::env::temp_dir().join(format!("xtask-baseline-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        git(&folder, &["init", "--quiet"]);
        let commit = |text| {
            git(&folder, &["commit", "--quiet", "--allow-empty", "-m", text]);
            git(&folder, &["rev-parse", "HEAD"])
        };
        let release = commit("release");
        let later = commit("later");
        assert_eq!(baseline(&folder, "v1", &release), Some(&*release));

        git(&folder, &["tag", "v1", &release]);
        assert_eq!(baseline(&folder, "v1", &release), Some("v1"));

        // The clone of an older state, and one that lacks the commit.
        git(&folder, &["checkout", "--quiet", &release]);
        assert_eq!(baseline(&folder, "v2", &later), None);
        assert_eq!(baseline(&folder, "v2", &"0".repeat(40)), None);
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
