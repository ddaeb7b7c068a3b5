//! `kumi bench` and `kumi tour`: run the laboratory's binary, `kumi-lab`. It is a separate package,
//! so that the product is built without benchmarks.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// File name of the laboratory's binary.
const LAB: &str = "kumi-lab";
/// Exit code if the binary cannot be run.
const ABSENT: u8 = 2;

/// Arguments after the subcommand, which are passed on unchanged.
#[derive(clap::Args)]
pub struct Args {
    /// Arguments of kumi-lab; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Replaces this process with `kumi-lab SUBCOMMAND ARGS`, whose exit code becomes the process's.
/// Returns only if the binary cannot be run.
pub fn run(subcommand: &str, args: Args) -> ExitCode {
    let beside = beside();
    let program = beside.as_deref().map_or(OsStr::new(LAB), |path| path.as_os_str());
    let error = Command::new(program).arg(subcommand).args(args.args).exec();
    let how = "build it with `cargo build --release -p kumi-lab`";
    match error.kind() {
        io::ErrorKind::NotFound => eprintln!(
            "kumi: {subcommand}: no {LAB} beside kumi or on PATH; {how} in Kumihimo's repository"
        ),
        _ => eprintln!("kumi: {subcommand}: {}: {error}; {how}", program.display()),
    }
    ExitCode::from(ABSENT)
}

/// Path of a laboratory binary in the directory of this program, if there is one.
fn beside() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(LAB);
    path.is_file().then_some(path)
}
