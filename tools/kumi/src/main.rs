//! `kumi`, the command of Kumihimo. One file (or folder) a subcommand.
#![forbid(unsafe_code)]

mod bench;
mod doctor;
mod events;
mod serve;
mod tour;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "kumi", version, about = "Microprocesses on virtual processors: tour, benchmarks and checks")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, beside rivals if asked, against the figures to reach
    Bench(bench::Args),
    /// Show what a microprocess is, on real work, within 90 s
    Tour(tour::Args),
    /// Say what this machine offers and what the runtime makes of it
    Doctor,
    /// Install, remove or show the events of the kernel's half for users without privileges
    Events(events::Args),
    /// Run a program and record what its microprocesses do, for <https://ui.perfetto.dev>; or check such a record
    Trace(trace::Args),
    /// Run a server that speaks a protocol of others
    #[command(subcommand)]
    Serve(serve::Server),
    /// Our side of one benchmark, as a process of its own
    #[command(hide = true)]
    BenchChild(bench::child::Args),
    /// The load of `echo`, as a process of its own
    #[command(hide = true)]
    BenchLoad(bench::load::Args),
    /// The load of `priority-io`, as a process of its own
    #[command(hide = true)]
    BenchPriorityLoad(bench::priority_load::Args),
    /// The other side of `stall`, as a process of its own
    #[command(hide = true)]
    BenchOutside(bench::outside::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Tour(args) => tour::run(args),
        Command::Doctor => doctor::run(),
        Command::Events(args) => events::run(args),
        Command::Trace(args) => return ended(trace::run(args)),
        Command::Serve(server) => serve::run(server),
        Command::BenchChild(args) => bench::child::run(args),
        Command::BenchLoad(args) => bench::load::run(args),
        Command::BenchPriorityLoad(args) => bench::priority_load::run(args),
        Command::BenchOutside(args) => bench::outside::run(args),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

fn ended(done: Result<ExitCode, String>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(message) => {
            eprintln!("kumi: {message}");
            ExitCode::FAILURE
        }
    }
}
