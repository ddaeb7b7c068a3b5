//! `cargo xtask`: the project's own chores. `make` and `.ci/run` call it; nothing of it is part of
//! the product.
//!
//! Each subcommand is a module of the same name. Shell scripts call it wherever text has to be
//! counted or parsed, because the dialects of awk, sed and sort differ between machines.

mod bench_check;
mod cargo_test;
mod check;
mod docs;
mod failure;
mod layers;
mod locking;
mod msrv;
mod picture;
mod portable;
mod prose;
mod report;
mod stress;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

pub use failure::Failure;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own chores", arg_required_else_help = true)]
enum Command {
    /// Compare the current tree with a commit: two builds in turn on twenty named rows
    BenchCheck(bench_check::Args),
    /// Count the lines that touch locking, as table 1 of the paper on localised locks (P3) does
    Locking(locking::Args),
    /// Check that the crate `kumihimo` compiles for other targets, and run the unit tests on musl
    Portable(portable::Args),
    /// Check the minimum Rust version that Cargo.toml states
    Msrv,
    /// Check the language of comments, messages and names against a budget that only falls
    Prose(prose::Args),
    /// Check which way the imports inside each crate run, and count circles of modules
    Layers(layers::Args),
    /// Build the reference of the API and the book
    Docs,
    /// Draw `kumi top` over a busy program, for README and book
    Picture(picture::Args),
    /// Format, lints and documentation
    Lint,
    /// Everything that must hold before a change is handed in
    Check,
    /// Run every suite, and one row of the matrix of fallbacks
    Test(test::Args),
    /// Run every test suite over and over beside busy processes, and name what fails
    Stress(stress::Args),
    /// A busy process of `stress`
    #[command(hide = true)]
    Burn(stress::Burn),
}

fn main() -> ExitCode {
    let ended = match Command::parse() {
        Command::BenchCheck(args) => bench_check::run(&args),
        Command::Locking(args) => locking::run(&args),
        Command::Portable(args) => portable::run(&args),
        Command::Msrv => msrv::run(),
        Command::Prose(args) => prose::run(&args),
        Command::Layers(args) => layers::run(&args),
        Command::Docs => docs::run(),
        Command::Picture(args) => picture::run(&args),
        Command::Lint => check::lint(),
        Command::Check => check::run(),
        Command::Test(args) => test::run(&args),
        Command::Stress(args) => stress::run(&args),
        Command::Burn(burn) => burn.run(),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
