//! What stands beside this program, built from the repository.

use std::path::PathBuf;

use kumihimo_bench_kit::cargo;

use super::Trouble;
use super::rivals::{repository, target_directory};

/// Builds packages into the folder of this program, so that they are of its source, and returns the
/// folder. An installation is in no target directory, and has them already.
///
/// # Errors
/// If they do not build.
pub fn build(packages: &[&str]) -> Result<PathBuf, Trouble> {
    let own = std::env::current_exe().map_err(|e| format!("own program: {e}"))?;
    let folder = own.parent().map(PathBuf::from).unwrap_or_default();
    let is_release = folder == target_directory().join("release");
    if !is_release && folder != target_directory().join("debug") {
        return Ok(folder);
    }
    let mut cargo = cargo();
    cargo.args(["build", "--quiet"]).args(packages.iter().flat_map(|package| ["-p", package]));
    if is_release {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(repository()).status().map_err(|e| format!("cargo: {e}"))?;
    match status.success() {
        true => Ok(folder),
        false => Err(format!("{} does not build: {status}", packages.join(", ")).into()),
    }
}

/// Returns the path of `kumi`, for what `kumi-lab` leaves out: the border.
///
/// # Errors
/// If it does not build, or an installation lacks it.
pub fn kumi() -> Result<PathBuf, Trouble> {
    let program = build(&["kumi"])?.join("kumi");
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("{} is missing", program.display()).into()),
    }
}
