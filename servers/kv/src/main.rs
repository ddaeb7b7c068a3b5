//! The server as a separate program, equivalent to `kumi serve kv`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use kumihimo_kv::Options;

/// An in-memory key-value server with Redis's protocol; each connection is a microprocess
#[derive(Parser)]
#[command(name = "kumihimo-kv", version)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    match kumihimo_kv::run(Cli::parse().options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("kv: {message}");
            ExitCode::FAILURE
        }
    }
}
