//! `cargo xtask`: the project's development tasks, called by `make` and `.ci/run`. Not a part of
//! the product.
//!
//! Each subcommand is a module of the same name: `check` has those of a change before it is
//! submitted, `sources` and `documents` those over text. Shell scripts call it to count or parse
//! text, because the dialects of awk, sed and sort differ between machines.

mod bench_check;
mod cargo_test;
mod check;
mod documents;
mod failure;
mod programs;
mod report;
mod sources;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use check::{aarch64, fuzz, msrv, packaging, portable, stress};
use documents::{book_figures, docs, picture};
pub use failure::Failure;
use sources::{layers, locking, prose};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "The project's development tasks",
    arg_required_else_help = true
)]
enum Command {
    /// Compare the current tree with a commit: alternating runs of both builds on twenty named rows
    BenchCheck(bench_check::Args),
    /// Count the lines that touch locking, like table 1 of the paper on localised locks (P3)
    Locking(locking::Args),
    /// Check that the crate `kumihimo` compiles for other targets, and run the unit tests on musl
    Portable(portable::Args),
    /// Build for AArch64 and run the suites under qemu-user
    CheckAarch64(aarch64::Args),
    /// Check the minimum Rust version that Cargo.toml states
    Msrv,
    /// Check the language of comments, messages and names against a budget that only falls
    Prose(prose::Args),
    /// Check the direction of imports inside each crate, and count circles of modules
    Layers(layers::Args),
    /// Build every crate that can be published from its package alone
    Package,
    /// Build the Debian packages, into target/debian
    Deb,
    /// Build the image of Containerfile, where podman, buildah or docker runs
    Container,
    /// Build the reference of the API and the book
    Docs,
    /// Write the book's pages about benchmarks from lab/results
    BookFigures,
    /// Run the fuzzers, minimise their corpora, or measure the lines that these cover
    Fuzz(fuzz::Args),
    /// Draw `kumi top` over a busy program, for README and book
    Picture(picture::Args),
    /// Run the checks that take a few minutes: format, lints and documentation
    Lint,
    /// Run all checks and all suites
    Check,
    /// Run every suite, and one row of the matrix of fallbacks
    Test(test::Args),
    /// Run every test suite repeatedly beside busy processes, and report failures
    Stress(stress::Args),
    /// Run real programs under `kumi run` and compare them with plain runs
    Programs(programs::Args),
    /// Clients of the servers of `programs`
    #[command(hide = true)]
    ProgramsLoad(programs::Load),
    /// A busy process of `stress`
    #[command(hide = true)]
    Burn(stress::Burn),
}

fn main() -> ExitCode {
    let ended = match Command::parse() {
        Command::BenchCheck(args) => bench_check::run(&args),
        Command::Locking(args) => locking::run(&args),
        Command::Portable(args) => portable::run(&args),
        Command::CheckAarch64(args) => aarch64::run(&args),
        Command::Msrv => msrv::run(),
        Command::Prose(args) => prose::run(&args),
        Command::Layers(args) => layers::run(&args),
        Command::Package => packaging::package(),
        Command::Deb => packaging::deb(),
        Command::Container => packaging::container(),
        Command::Docs => docs::run(),
        Command::BookFigures => book_figures::run(),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Picture(args) => picture::run(&args),
        Command::Lint => check::lint(),
        Command::Check => check::run(),
        Command::Test(args) => test::run(&args),
        Command::Stress(args) => stress::run(&args),
        Command::Programs(args) => programs::run(&args),
        Command::ProgramsLoad(load) => load.run(),
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
