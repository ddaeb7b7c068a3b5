//! `kumi-lab`, the laboratory's command: benchmarks, simulations, and the tour.
//!
//! `kumi bench` and `kumi tour` forward to it. It has the commands of `kumi` too: benchmarks start
//! them (`mount`, `serve`, `ps`, `top`) as processes of the same build. One folder a subcommand;
//! hidden subcommands are the processes that a benchmark is made of.
#![forbid(unsafe_code)]

mod bench;
mod tour;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "kumi-lab",
    version,
    about = "The laboratory of Kumihimo: benchmarks, simulations, the tour, and the commands of kumi in the same build"
)]
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
    #[command(flatten)]
    Product(kumi::Command),
    /// Our side of one benchmark, as a process of its own
    #[command(hide = true)]
    BenchChild(bench::child::Args),
    /// The load of `echo`, as a process of its own
    #[command(hide = true)]
    BenchLoad(bench::load::echo::Args),
    /// The load of `priority-io`, as a process of its own
    #[command(hide = true)]
    BenchPriorityLoad(bench::load::priority::Args),
    /// The load of `servers`, as a process of its own
    #[command(hide = true)]
    BenchFiles(bench::runs::servers::Args),
    /// The other side of `stall`, as a process of its own
    #[command(hide = true)]
    BenchOutside(bench::load::outside::Args),
    /// The other side of `unwrapped`, as a process of its own
    #[command(hide = true)]
    BenchPeer(bench::load::peer::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Tour(args) => tour::run(args),
        Command::Product(command) => return kumi::ended(command.run(Cli::command())),
        Command::BenchChild(args) => bench::child::run(args),
        Command::BenchLoad(args) => bench::load::echo::run(args),
        Command::BenchPriorityLoad(args) => bench::load::priority::run(args),
        Command::BenchFiles(args) => bench::runs::servers::obey(args),
        Command::BenchOutside(args) => bench::load::outside::run(args),
        Command::BenchPeer(args) => bench::load::peer::run(args),
    };
    kumi::ended(done.map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
