//! What people do with a file system. Each job is given an empty directory of it, and panics where
//! something is not as on any other.

mod build;
mod database;
mod files;
mod sources;
mod tree;

pub use build::{builds, maps};
pub use database::keeps_a_database;
pub use files::{copies_sparsely, holds_many_small_files, is_found_and_measured, verifies};
pub use sources::{clones, packs, synchronises};
pub use tree::Tree;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::image::{has, told};

/// Runs a program in a directory; what it wrote to standard output.
///
/// # Panics
/// If it fails.
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

/// Whether a job can be done here; says so if not.
fn can(job: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has(program));
    missing.inspect(|program| kumihimo_tests::skip(job, &format!("no {program} here"))).is_none()
}
