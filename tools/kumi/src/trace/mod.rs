//! `kumi trace`: runs a program with tracing enabled, and checks traces. [`report`] makes a page
//! of one.

mod lock_stacks;
mod report;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use kumihimo_config::named_file;
use kumihimo_trace::{Summary, Verdict, check_together, recover, session, summaries};

use crate::ask::machines::{At, Where};
use crate::ask::{self, Place, Reach};
use crate::output_file;
use crate::text::written;
use lock_stacks::Sampler;

/// Exit code of `check` if the trace is incomplete and therefore proves nothing.
const INCOMPLETE: u8 = 2;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// File for the trace
    #[arg(short, long, default_value = "trace.perfetto")]
    output: PathBuf,
    /// Records in each buffer, 24 bytes each
    #[arg(long)]
    buffer: Option<usize>,
    /// Also sample the stacks of the holders and waiters of locks, into FILE.locks, for the report
    #[arg(long)]
    stacks: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Check that states never overlap and that priorities are exact; exits with 1 if not, with 2
    /// if records are missing. For traces of several processes that shared the cores (without
    /// KUMI_ARBITER=off), also check priorities between the processes
    Check {
        /// Traces written by `kumi trace` or `Builder::trace`, one for each process
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Consecutive steps of a VP that may leave a higher one waiting while a lower one runs
        /// [default: 6]
        #[arg(long)]
        bound: Option<u64>,
    },
    /// Write a report of a trace: one HTML file with timeline, tables, locks, latencies and
    /// findings, for any browser, without a network
    Report(report::Args),
    /// Read the trace of a running address space that is traced, without stopping it
    Live {
        /// The address space (12), also of another machine (build7/12)
        space: At<Place>,
        /// File for the trace
        #[arg(short, long, default_value = "trace.perfetto")]
        output: PathBuf,
        #[command(flatten)]
        on: Where,
    },
}

/// Runs the program, or the check.
pub fn run(args: Args) -> Result<ExitCode, String> {
    match args.what {
        Some(What::Check { files, bound }) => {
            let report = check_together(&files, bound).map_err(|e| e.to_string())?;
            let code = match report.verdict() {
                Verdict::Holds => ExitCode::SUCCESS,
                Verdict::Violated => ExitCode::FAILURE,
                Verdict::Incomplete => ExitCode::from(INCOMPLETE),
            };
            written(writeln!(io::stdout().lock(), "{report}").map(|()| code))?;
            Ok(code)
        }
        Some(What::Report(args)) => report::run(&args),
        Some(What::Live { space, output, on }) => live(&space, &output, &on),
        None => trace(&args.output, args.buffer, args.stacks, &args.program),
    }
}

/// Writes a live trace.
fn live(at: &At<Place>, output: &Path, on: &Where) -> Result<ExitCode, String> {
    let (mut space, place) = (Reach::to(on.of(at)?.machine), at.of);
    let space = space.space(place.number).map_err(|trouble| trouble.to_string())?;
    ask::space_at(space, place).map_err(|trouble| trouble.to_string())?;
    output_file::replace(output, |file| space.trace(file).map_err(|e| e.to_string()))?;
    eprintln!(
        "kumi: {}: open it at https://ui.perfetto.dev (\"Open trace file\")",
        output.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn trace(
    output: &Path,
    buffer: Option<usize>,
    stacks: bool,
    program: &[OsString],
) -> Result<ExitCode, String> {
    // The program may change its working directory before its runtime starts.
    let output = std::path::absolute(output).map_err(|e| format!("{}: {e}", output.display()))?;
    let is_file = prepare(&output)?;
    if stacks && !is_file {
        return Err(format!("{}: --stacks needs a trace in a file", output.display()));
    }
    let (name, args) = program.split_first().ok_or("no program")?;
    let mut command = Command::new(name);
    command.args(args).env("KUMI_TRACE", &output);
    if let Some(records) = buffer {
        if !session::RECORDS.contains(&records) {
            let (least, most) = session::RECORDS.into_inner();
            return Err(format!("--buffer {records}: expected {least} to {most}"));
        }
        let lab = kumihimo_config::lab_with(&format!("trace_buffer={records}"));
        command.env("KUMI_LAB", lab);
    }
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", name.display()))?;
    let sampler = match stacks {
        true => Some(Sampler::start(child.id(), &lock_stacks::beside(&output))),
        false => None,
    };
    let status = child.wait().map_err(|e| e.to_string())?;
    // The program has run, whatever became of the stacks.
    match sampler.map(|sampler| sampler.and_then(Sampler::finish)) {
        Some(Ok(samples)) => {
            let path = lock_stacks::beside(&output);
            eprintln!("kumi: {}: {samples} samples of the locks' stacks", path.display());
        }
        Some(Err(why)) => eprintln!("kumi: no stacks of locks: {why}"),
        None => {}
    }
    let recovered = match recover(&output, child.id()) {
        None => None,
        Some(Ok(summary)) => Some(summary),
        Some(Err(e)) => return failed(status, &e.to_string()),
    };
    let all = match (is_file, recovered) {
        (true, _) => match summaries(&output) {
            Ok(all) => all,
            Err(e) => return failed(status, &format!("{}: {e}", output.display())),
        },
        (false, recovered) => recovered.into_iter().collect(),
    };
    if is_file && all.is_empty() {
        return failed(
            status,
            &format!("{}: no trace, because the program started no runtime", name.display()),
        );
    }
    describe(&output, &all, is_file, recovered.is_some());
    Ok(code(status))
}

/// Empties the output file, so that an old trace is not taken for this program's. Returns false if
/// the output is not a regular file.
fn prepare(output: &Path) -> Result<bool, String> {
    let is_file = !named_file::is_stream(output);
    if is_file {
        named_file::open(output, OpenOptions::new().write(true))
            .and_then(|file| file.set_len(0))
            .map_err(|e| format!("{}: {e}", output.display()))?;
    }
    Ok(is_file)
}

fn describe(output: &Path, all: &[Summary], is_file: bool, recovered: bool) {
    let path = output.display();
    if !is_file {
        return eprintln!("kumi: the trace was written to {path}");
    }
    let sum = |of: fn(&Summary) -> u64| all.iter().map(of).sum::<u64>();
    let (records, lost) = (sum(|s| s.records), sum(|s| s.lost));
    eprintln!(
        "kumi: {path}: {records} records, {lost} lost; {} microprocesses",
        sum(|s| s.spawned)
    );
    if recovered {
        eprintln!(
            "kumi: the program died while its runtime was running: its last milliseconds are missing"
        );
    }
    if lost > 0 {
        eprintln!("kumi: lost records are marked in the trace; a larger --buffer may help");
    }
    eprintln!(
        "kumi: open it at https://ui.perfetto.dev (\"Open trace file\"); the file stays on this machine"
    );
    eprintln!("kumi: or check it: kumi trace check {path}; as a page: kumi trace report {path}");
}

/// Reports a missing trace. A failure of the program itself has precedence.
fn failed(status: ExitStatus, why: &str) -> Result<ExitCode, String> {
    if status.success() {
        return Err(why.to_owned());
    }
    eprintln!("kumi: {why}");
    Ok(code(status))
}

/// Exit code as in a shell: 128 plus the number of the signal.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(code as u8)
}
