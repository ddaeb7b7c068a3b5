//! `kumi run`: starts an unmodified program with its threads as microprocesses.
//!
//! - [`program`]: finds the program, and decides whether it can run this way.
//! - [`preload`]: finds the two shared libraries that the dynamic linker loads into it.
//!
//! The command replaces itself by the program (execve(2)), so process ID, descriptors and exit
//! status are the program's own. What the program cannot have stops nothing: it runs plainly, with
//! a line on standard error that says why.

pub(crate) mod preload;
pub(crate) mod program;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use preload::Preload;
use program::{Missing, Program};

use crate::text::say;

/// Exit codes of a command that runs another one, as of env(1) and nohup(1).
const FAILED: u8 = 125;
/// Why a program runs without this command.
const INTERPOSED: &str = "it has kumihimo::interpose!() in it";
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Name of the variable by which the command tells the preloaded library what was asked for.
const OPTIONS: &str = "KUMIHIMO_RUN";

/// Options of `kumi run`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of virtual processors [default: as KUMI_VPS]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    vps: Option<u32>,
    /// Fail where the program's threads would be kernel threads
    #[arg(long)]
    strict: bool,
    /// Leave the processes that the program starts alone
    #[arg(long)]
    no_children: bool,
    /// Write a line for each program with its numbers of threads to FILE, which is replaced
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Order of runnable threads of one priority
    #[arg(long, value_enum, default_value_t = Policy::Feedback)]
    policy: Policy,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Scheduling policies for unmodified programs.
#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// Threads that wait often come before those that compute
    Feedback,
    /// In turn
    RoundRobin,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Policy::Feedback => "feedback",
            Policy::RoundRobin => "round-robin",
        }
    }
}

/// Finds a program for command `own`. If there is none, says why, and returns the exit code.
fn find(own: &str, name: &OsString) -> Result<Program, ExitCode> {
    Program::find(name).map_err(|missing| match missing {
        Missing::NotFound => {
            eprintln!("kumi {own}: {}: no such program", name.display());
            ExitCode::from(NOT_FOUND)
        }
        Missing::NotExecutable(error) => {
            eprintln!("kumi {own}: {}: {error}", name.display());
            ExitCode::from(NOT_EXECUTABLE)
        }
    })
}

/// Returns a command that starts a program with its threads as microprocesses, for `kumi profile`.
/// An unmodified program is started as by `kumi run`. If that is impossible, says why, and returns
/// the exit code.
pub(crate) fn command(
    name: &OsString,
    words: &[OsString],
) -> Result<std::process::Command, ExitCode> {
    let program = find("profile", name)?;
    let mut command = std::process::Command::new(&program.path);
    command.arg0(name).args(words);
    if program.is_interposed() || program.has_runtime() {
        return Ok(command);
    }
    match program.refusal().map_or_else(Preload::find, Err) {
        Ok(preload) => {
            let args = Args {
                vps: None,
                strict: false,
                no_children: false,
                report: None,
                policy: Policy::Feedback,
                command: Vec::new(),
            };
            prepare(&mut command, &args, &preload, None);
            Ok(command)
        }
        Err(why) => {
            eprintln!("kumi profile: {}: {why}; only microprocesses are profiled", name.display());
            Err(ExitCode::from(FAILED))
        }
    }
}

/// Starts the program. Returns only if that fails.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let mut words = args.command.iter();
    let Some(name) = words.next() else {
        return Err("run: no program is named".into());
    };
    let program = match find("run", name) {
        Ok(program) => program,
        Err(code) => return Ok(code),
    };
    if program.is_interposed() {
        eprintln!("kumi run: {}: {INTERPOSED}: run it without `kumi run`", name.display());
        return Ok(ExitCode::from(FAILED));
    }
    let mut command = std::process::Command::new(&program.path);
    command.arg0(name).args(words);
    let ready = program.refusal().map_or_else(Preload::find, Err);
    match ready {
        Ok(preload) => {
            let report = match args.report.as_deref().map(create_report).transpose() {
                Ok(report) => report,
                Err(why) => {
                    eprintln!("kumi run: {why}");
                    return Ok(ExitCode::from(FAILED));
                }
            };
            prepare(&mut command, &args, &preload, report.as_deref());
        }
        Err(why) if args.strict => {
            eprintln!("kumi run: {}: {why}; --strict allows no kernel threads", name.display());
            return Ok(ExitCode::from(FAILED));
        }
        Err(why) => {
            eprintln!("kumi run: {}: {why}; it runs on kernel threads", name.display());
        }
    }
    let error = command.exec();
    eprintln!("kumi run: {}: {error}", program.path.display());
    Ok(ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }))
}

/// Creates the file of the report and returns its absolute path. A file that is there is replaced
/// and not written, because programs that still run have mapped their lines of it.
fn create_report(path: &Path) -> Result<PathBuf, String> {
    let says = |error: io::Error| format!("{}: {error}", path.display());
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => fs::remove_file(path).map_err(says)?,
        Ok(_) => return Err(format!("{}: it exists and is no regular file", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(says(error)),
    }
    fs::File::create_new(path).map_err(says)?;
    fs::canonicalize(path).map_err(says)
}

/// Adds what the dynamic linker and the preloaded library read.
fn prepare(
    command: &mut std::process::Command,
    args: &Args,
    preload: &Preload,
    report: Option<&Path>,
) {
    let before = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty());
    command.env("LD_PRELOAD", preload.variable(before.as_deref()));
    if let Some(vps) = args.vps {
        command.env("KUMI_VPS", vps.to_string());
    }
    let mut options = OsString::from(format!("policy={}", args.policy.name()));
    if args.no_children {
        options.push(",children=off");
    }
    if args.strict {
        options.push(",strict=on");
    }
    if let Some(report) = report {
        // The last one: its name may contain commas.
        options.push(",report=");
        options.push(report);
    }
    command.env(OPTIONS, options);
}

/// Prints what `kumi run` would do with the program, for `kumi doctor --run`.
pub(crate) fn explain(name: &OsString) -> Result<(), String> {
    let program = Program::find(name).map_err(|missing| match missing {
        Missing::NotFound => format!("{}: no such program", name.display()),
        Missing::NotExecutable(error) => format!("{}: {error}", name.display()),
    })?;
    say!("{:<24} {}", "program", program.path.display());
    if let Some(interpreter) = &program.interpreter {
        say!("{:<24} {}, which the script names", "runs", interpreter.display());
    }
    if program.is_interposed() {
        say!("{:<24} microprocesses: {INTERPOSED}", "threads");
        return Ok(());
    }
    match program.refusal().map_or_else(Preload::find, Err) {
        Ok(preload) => {
            say!("{:<24} microprocesses, from its first thread on", "threads");
            say!("{:<24} {}", "preloaded", preload.variable(None).display());
        }
        Err(why) => say!("{:<24} kernel threads: {why}", "threads"),
    }
    Ok(())
}
