//! Counts lines and files that touch locking (P3, table 1).

use std::process::ExitCode;

use crate::Failure;

#[derive(clap::Args)]
pub struct Args {}

/// Prints the table.
pub fn run(_args: &Args) -> Result<ExitCode, Failure> {
    Err("not counted yet".into())
}
