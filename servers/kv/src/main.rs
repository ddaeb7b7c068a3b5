//! The server as a program of its own, as `kumi serve kv`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use kumihimo_kv::Options;

/// An in-memory key-value server that speaks Redis's protocol: a microprocess for each connection
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
