//! `kumi`, the command of Kumihimo. One file (or folder) a subcommand.
#![forbid(unsafe_code)]

mod ask;
mod bench;
mod board;
mod doctor;
mod events;
mod metrics;
mod ps;
mod resources;
mod serve;
mod shell;
mod steer;
mod text;
mod top;
mod tour;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use kumihimo_machine::handler::Action;

#[derive(Parser)]
#[command(
    name = "kumi",
    version,
    about = "Microprocesses on virtual processors: tour, benchmarks, checks, and what runs seen and steered"
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
    /// Say what this machine offers and what the runtime makes of it
    Doctor(doctor::Args),
    /// Install, remove or show the events of the kernel's half for users without privileges
    Events(events::Args),
    /// Run a program and record what its microprocesses do, for <https://ui.perfetto.dev>; read the
    /// record of one that runs; check one
    Trace(trace::Args),
    /// Run a server: of a protocol of others, or of the clock
    #[command(subcommand)]
    Serve(serve::Server),
    /// Mount an ext2 image, a block device with one, or a directory, served by microprocesses or
    /// otherwise
    Mount(kumihimo_files::MountOptions),
    /// Take away what kumi mount has mounted, that of a server that has died included
    Umount(kumihimo_files::UnmountOptions),
    /// Show the microprocesses of every address space of yours
    Ps(ps::Args),
    /// Show and steer them live, in the terminal
    Top(top::Args),
    /// Show the address spaces that share the cores, by which rules, and those that did not do
    /// their part; set the rule of feedback
    Board(board::Args),
    /// Show the usage table: every kind of resource
    Resources(resources::Args),
    /// Stop microprocesses until they are resumed
    Suspend(steer::Of),
    /// Let suspended microprocesses go on
    Resume(steer::Of),
    /// Cancel microprocesses: each ends where it next waits; or end gates and links
    Cancel(steer::Of),
    /// Set the priority of microprocesses
    Priority(steer::Priority),
    /// Show where microprocesses are in their program
    Backtrace(steer::Of),
    /// Print a line whenever the state of a microprocess has changed, until it ends
    Watch(watch::Args),
    /// Print what is counted in every address space, as Prometheus reads it
    Metrics(metrics::Args),
    /// Print the completions of a shell
    Completions(shell::Completions),
    /// Print the manual page, or write one for each subcommand
    Man(shell::Man),
    /// Our side of one benchmark, as a process of its own
    #[command(hide = true)]
    BenchChild(bench::child::Args),
    /// The load of `echo`, as a process of its own
    #[command(hide = true)]
    BenchLoad(bench::load::Args),
    /// The load of `priority-io`, as a process of its own
    #[command(hide = true)]
    BenchPriorityLoad(bench::priority_load::Args),
    /// The load of `servers`, as a process of its own
    #[command(hide = true)]
    BenchFiles(bench::servers::Args),
    /// The other side of `stall`, as a process of its own
    #[command(hide = true)]
    BenchOutside(bench::outside::Args),
    /// The other side of `unwrapped`, as a process of its own
    #[command(hide = true)]
    BenchPeer(bench::peer::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Tour(args) => tour::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Events(args) => events::run(args),
        Command::Trace(args) => return ended(trace::run(args)),
        Command::Serve(server) => serve::run(server),
        Command::Mount(options) => kumihimo_files::mount(options),
        Command::Umount(options) => kumihimo_files::unmount(&options),
        Command::Ps(args) => return ended(ps::run(args)),
        Command::Top(args) => return ended(top::run(args)),
        Command::Board(args) => return ended(board::run(args)),
        Command::Resources(args) => return ended(resources::run(args)),
        Command::Suspend(of) => return ended(steer::act(of, Action::Suspend)),
        Command::Resume(of) => return ended(steer::act(of, Action::Resume)),
        Command::Cancel(of) => return ended(steer::act(of, Action::Cancel)),
        Command::Priority(args) => return ended(steer::priority(args)),
        Command::Backtrace(of) => return ended(steer::backtrace(of)),
        Command::Watch(args) => return ended(watch::run(args)),
        Command::Metrics(args) => return ended(metrics::run(args)),
        Command::Completions(args) => return ended(shell::completions(args, Cli::command())),
        Command::Man(args) => return ended(shell::man(args, Cli::command())),
        Command::BenchChild(args) => bench::child::run(args),
        Command::BenchLoad(args) => bench::load::run(args),
        Command::BenchPriorityLoad(args) => bench::priority_load::run(args),
        Command::BenchFiles(args) => bench::servers::obey(args),
        Command::BenchOutside(args) => bench::outside::run(args),
        Command::BenchPeer(args) => bench::peer::run(args),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
