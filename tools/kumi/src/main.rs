//! `kumi`, the command of Kumihimo: the library's subcommands, and those forwarded to the
//! laboratory's binary.
#![forbid(unsafe_code)]

mod forward;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "kumi",
    version,
    about = "Kumihimo's command: show, steer and trace microprocesses, run servers, check this machine"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run benchmarks, with rivals if asked, and compare with targets (kumi-lab)
    #[command(disable_help_flag = true)]
    Bench(forward::Args),
    /// Demonstrate microprocesses on real work within 90 s (kumi-lab)
    #[command(disable_help_flag = true)]
    Tour(forward::Args),
    #[command(flatten)]
    Own(kumi::Command),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench(args) => forward::run("bench", args),
        Command::Tour(args) => forward::run("tour", args),
        Command::Own(command) => kumi::ended(command.run(Cli::command())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
