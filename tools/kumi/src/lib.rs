//! The subcommands of `kumi` for users, one module each.
//!
//! - [`host`]: features of this machine, and their use by the runtime.
//! - [`show`]: state of the machine's address spaces, read from their control sockets.
//! - `run`: unmodified programs, with their threads as microprocesses.
//! - `steer`, `trace`, `profile`: requests that change or record an address space.
//! - `serve`: servers that run in this process.
//! - `border`: the other machines, to which this one is connected.
//! - `web`: what `show::top` shows, for a browser, with the requests of `steer` and `profile`.
//! - `shell`: completions and manual pages, generated from the command line itself.
//!
//! `ask` connects to address spaces, `text` formats cells and lines, and `output_file` writes
//! files; every other module may use these. The binary `kumi` is this library's [`Command`] with
//! `bench` and `tour` forwarded. The laboratory's binary `kumi-lab` has the same [`Command`] beside
//! its own, so that one build measures itself.
#![forbid(unsafe_code)]

pub mod ask;
#[cfg(feature = "border")]
mod border;
pub mod host;
mod output_file;
pub mod page;
mod profile;
mod run;
mod serve;
mod shell;
pub mod show;
mod steer;
mod text;
mod trace;
mod web;

use std::process::ExitCode;

use clap::Subcommand;
use kumihimo_machine::handler::Action;

use host::{doctor, events};
use show::{board, locks, metrics, ps, resources, top, watch};

/// The subcommands for users.
#[derive(Subcommand)]
pub enum Command {
    /// Run an unmodified program with its threads as microprocesses
    Run(run::Args),
    /// Show the features of this machine and how the runtime uses them
    Doctor(doctor::Args),
    /// Install, remove or show the kernel event programs for unprivileged users
    Events(events::Args),
    /// Run a program and record its microprocesses, for <https://ui.perfetto.dev>; read the trace
    /// of a running one; check traces
    Trace(trace::Args),
    /// Show where a program uses CPU time or waits: as text, flame graph, or for pprof
    Profile(profile::Args),
    /// Run a server: a key-value server, or the clock
    #[command(subcommand)]
    Serve(serve::Server),
    /// Connect this machine with others: serve, make certificates, list the machines
    #[cfg(feature = "border")]
    Border(border::Args),
    /// Mount an ext2 image, a block device with one, or a directory, with a choice of server
    /// organisations
    Mount(kumihimo_files::MountOptions),
    /// Remove a mount of kumi mount, even if its server has died
    Umount(kumihimo_files::UnmountOptions),
    /// Show the microprocesses of every address space of yours
    Ps(ps::Args),
    /// Show and steer microprocesses live in the terminal
    Top(top::Args),
    /// Show and steer microprocesses live in a browser
    Web(web::Args),
    /// Show locks with their holders and waiters, chains of waits, and deadlocks
    Locks(locks::Args),
    /// Show the address spaces that share the cores, the rules, and violations of the protocol; set
    /// the feedback rule
    Board(board::Args),
    /// Show the usage table: every kind of resource
    Resources(resources::Args),
    /// Stop microprocesses until they are resumed
    Suspend(steer::Of),
    /// Let suspended microprocesses continue
    Resume(steer::Of),
    /// Cancel microprocesses, each at its next wait; or end gates and links
    Cancel(steer::Of),
    /// Set the priority of microprocesses
    Priority(steer::Priority),
    /// Show the stacks of microprocesses
    Backtrace(steer::Of),
    /// Print a line for each change of a microprocess's state, until it ends
    Watch(watch::Args),
    /// Print the metrics of every address space in Prometheus's format
    Metrics(metrics::Args),
    /// Print a completion script for a shell
    Completions(shell::Completions),
    /// Print the manual page, or write one for each subcommand
    Man(shell::Man),
}

impl Command {
    /// Runs the command and returns its exit code. `whole` is the program's command line, which
    /// completions and manual pages describe.
    ///
    /// # Errors
    /// Description of the failure, as one line for standard error.
    pub fn run(self, whole: clap::Command) -> Result<ExitCode, String> {
        let done = match self {
            Command::Run(args) => return run::run(args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Events(args) => events::run(args),
            Command::Trace(args) => return trace::run(args),
            Command::Profile(args) => return profile::run(args),
            Command::Serve(server) => serve::run(server),
            #[cfg(feature = "border")]
            Command::Border(args) => return border::run(args),
            Command::Mount(options) => kumihimo_files::mount(options),
            Command::Umount(options) => kumihimo_files::unmount(&options),
            Command::Ps(args) => return ps::run(args),
            Command::Top(args) => return top::run(args),
            Command::Web(args) => web::run(args),
            Command::Locks(args) => return locks::run(&args),
            Command::Board(args) => return board::run(args),
            Command::Resources(args) => return resources::run(args),
            Command::Suspend(of) => return steer::act(of, Action::Suspend),
            Command::Resume(of) => return steer::act(of, Action::Resume),
            Command::Cancel(of) => return steer::act(of, Action::Cancel),
            Command::Priority(args) => return steer::priority(args),
            Command::Backtrace(of) => return steer::backtrace(of),
            Command::Watch(args) => return watch::run(args),
            Command::Metrics(args) => return metrics::run(args),
            Command::Completions(args) => return shell::completions(args, whole),
            Command::Man(args) => return shell::man(args, whole),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// The exit code of a command; prints why it failed to standard error.
pub fn ended(done: Result<ExitCode, String>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(message) => {
            eprintln!("kumi: {message}");
            ExitCode::FAILURE
        }
    }
}
