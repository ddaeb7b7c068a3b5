//! `kumi-lab`, the laboratory's command: benchmarks, simulations, and the tour.
//!
//! `kumi bench` and `kumi tour` run this program. It also has the commands of `kumi`, because
//! benchmarks start them (`mount`, `serve`, `ps`, `top`) as processes of the same build. Each
//! subcommand has a directory. Hidden subcommands are the processes of a benchmark.
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
    /// Run benchmarks, with rivals if asked, and compare with targets
    Bench(bench::Args),
    /// Demonstrate microprocesses on real work within 90 s
    Tour(tour::Args),
    #[command(flatten)]
    Product(kumi::Command),
    /// Kumihimo's side of one benchmark
    #[command(hide = true)]
    BenchChild(bench::child::Args),
    /// Load generator of `echo`
    #[command(hide = true)]
    BenchLoad(bench::load::echo::Args),
    /// Load generator of `run`
    #[command(hide = true)]
    BenchRequests(bench::load::requests::Args),
    /// Load generator of `priority-io`
    #[command(hide = true)]
    BenchPriorityLoad(bench::load::priority::Args),
    /// Load generator of `servers`
    #[command(hide = true)]
    BenchFiles(bench::runs::servers::Args),
    /// Peer of `stall`
    #[command(hide = true)]
    BenchOutside(bench::load::outside::Args),
    /// Peer of `unwrapped`
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
        Command::BenchRequests(args) => bench::load::requests::run(args),
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
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
