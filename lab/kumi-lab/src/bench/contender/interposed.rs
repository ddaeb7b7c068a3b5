//! The shared libraries of `kumi run`, beside this program.

use std::path::PathBuf;

use kumihimo_bench_kit::cargo;

use super::Trouble;
use super::rivals::{repository, target_directory};

const LIBRARIES: [&str; 2] = ["libkumihimo_preload.so", "libkumihimo_run.so"];

/// Returns whether `kumi run` finds its libraries beside this program.
pub fn is_there() -> bool {
    std::env::current_exe()
        .is_ok_and(|own| LIBRARIES.iter().all(|library| own.with_file_name(library).is_file()))
}

/// Builds the libraries from the repository, so that they are of this source. They cannot be built
/// together with this program: it enables the feature `lab`, which Cargo would enable in them, too.
///
/// # Errors
/// If they are not beside this program afterwards.
pub fn build() -> Result<(), Trouble> {
    let own = std::env::current_exe().map_err(|e| format!("own program: {e}"))?;
    let folder = own.parent().map(PathBuf::from).unwrap_or_default();
    // `kumi-lab` of an installation is in no target directory, and has its libraries.
    let release = folder == target_directory().join("release");
    if release || folder == target_directory().join("debug") {
        let mut cargo = cargo();
        cargo.args(["build", "--quiet", "-p", "kumihimo-run", "-p", "kumihimo-preload"]);
        if release {
            cargo.arg("--release");
        }
        let status = cargo.current_dir(repository()).status().map_err(|e| format!("cargo: {e}"))?;
        if !status.success() {
            return Err(format!("the libraries of kumi run do not build: {status}").into());
        }
    }
    match is_there() {
        true => Ok(()),
        false => Err(format!("{} are not in {}", LIBRARIES.join(", "), folder.display()).into()),
    }
}
