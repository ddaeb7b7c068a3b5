//! Typical uses of a file system. Each job gets an empty directory on it, and panics if the results
//! differ from those on other file systems.

mod build;
mod database;
mod files;
mod sources;
mod tree;

pub use build::{builds, maps};
pub use database::keeps_a_database;
pub use files::{copies_sparsely, holds_many_small_files, is_found_and_measured, verifies};
pub use sources::{clones, excerpt, packs, synchronises};
pub use tree::Tree;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::image::{has, told};

/// Runs a program in a directory and returns its standard output.
///
/// # Panics
/// If the program fails.
fn sh<S: AsRef<OsStr>>(directory: &Path, program: &str, arguments: &[S]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let arguments: Vec<_> =
        arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect();
    assert!(output.status.success(), "{program} {}: {}", arguments.join(" "), told(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns whether the programs of a job are installed. Reports the job as skipped otherwise.
fn can(job: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has(program));
    missing.inspect(|program| kumihimo_tests::skip(job, &format!("no {program} here"))).is_none()
}
