//! Counts lines and files that touch locking (P3, table 1).

use std::error::Error;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {}

/// Prints the table.
pub fn run(_args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    Err("not counted yet".into())
}
