//! Shared by the integration and stress tests: seeds, rounds, skips, and the project's documents.

pub mod browser;
mod condition;
pub mod container;
pub mod documents;
#[cfg(doctest)]
mod page_tests;
pub mod pipe_echo;
pub mod place;
pub mod process;
pub mod refusal;
mod seed;
pub mod servers;
pub mod user;

pub use condition::until;
pub use container::control_group;
pub use documents::book;
pub use seed::{Random, Round, extent, rounds, seed};

use std::io::Write;
use std::path::PathBuf;

/// Root of the source tree.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
        .to_path_buf()
}

/// Reports that the calling test cannot run on this machine, with the reason. The test then
/// returns. `xtask` counts it as skipped.
///
/// Written past libtest's capture, which applies to `print!` only, so that the line is visible
/// although the test passes.
pub fn skip(test: &str, why: &str) {
    let line = format!("\n[skip] {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
}
