//! `kumi profile`: where a program uses CPU time, where it waits, and all its stacks.
//!
//! The address space samples itself and sends addresses. [`target`] finds or starts it, [`names`]
//! resolves the addresses, and [`report`] and [`flame`] write the result.

mod flame;
mod names;
mod report;
mod target;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use kumihimo_machine::client::{Error, Neighbour};
use kumihimo_machine::handler::{Refused, Space};
use kumihimo_machine::profile::{CPU_RATE, OFF_CPU_RATE, ProfileKind, ProfileQuery, Recording};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::ask::{Place, Whose};
use crate::output_file;
use crate::text::{Plain, written};
use names::Names;
use report::Resolved;
use target::Target;

/// Length of the profile of a running program where none is given.
const SECONDS: f64 = 10.0;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    kumi profile 4711                          where process 4711 uses CPU time, for 10 s\n  \
    kumi profile --off-cpu 4711                where its microprocesses wait\n  \
    kumi profile --stacks 4711                 all stacks, equal ones together\n  \
    kumi profile -o cpu.svg -- ./server 8080   a flame graph of the whole run\n  \
    kumi profile -o cpu.pprof 4711 && go tool pprof -http : cpu.pprof")]
pub struct Args {
    /// The address space (12), or the process ID of its program
    #[arg(value_name = "PID")]
    of: Option<Place>,
    /// Time between park and wake, by the stack that parked, instead of CPU time
    #[arg(long, conflicts_with = "stacks")]
    off_cpu: bool,
    /// The stacks of all microprocesses now, equal ones together
    #[arg(long, conflicts_with_all = ["seconds", "rate"])]
    stacks: bool,
    /// Length of the profile [default: 10, or until the PROGRAM ends]; Ctrl-C ends it early
    #[arg(short, long, value_name = "N", value_parser = seconds)]
    seconds: Option<f64>,
    /// Samples per second of CPU time [default: 99], or looks per second with --off-cpu [default:
    /// 10]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: Option<u32>,
    /// Format of the result [default: by the name of FILE, or text]
    #[arg(short, long, value_enum)]
    format: Option<Format>,
    /// File for the result [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    whose: Whose,
    /// A program to start, and its arguments; an unmodified one is started as by kumi run
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["of", "stacks"])]
    program: Vec<OsString>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{text}: expected 0.1 to 86400 seconds"))
    }
}

/// Formats of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For `go tool pprof` and other viewers
    Pprof,
    /// One line for each stack, for flame graph tools
    Folded,
    /// A flame graph
    Svg,
    /// The functions and stacks that use most
    Text,
}

impl Format {
    /// The format that the name of a file demands.
    fn of(output: &Path) -> Option<Format> {
        match output.extension()?.to_str()? {
            "svg" => Some(Format::Svg),
            "folded" | "collapsed" => Some(Format::Folded),
            "txt" => Some(Format::Text),
            "pprof" | "pb" | "gz" | "prof" => Some(Format::Pprof),
            _ => None,
        }
    }
}

impl Args {
    fn format(&self) -> Result<Format, String> {
        let named = self.output.as_deref().and_then(Format::of);
        match self.format.or(named) {
            Some(Format::Pprof) if self.output.is_none() && io::stdout().is_terminal() => {
                Err("a profile for pprof is no text: write it to a file with -o FILE".into())
            }
            Some(format) => Ok(format),
            None => match &self.output {
                None => Ok(Format::Text),
                Some(output) => Err(format!(
                    "{}: its name demands no format: name it .pprof, .folded, .svg or .txt, or give --format",
                    output.display()
                )),
            },
        }
    }

    fn query(&self) -> ProfileQuery {
        let (kind, rate) = match (self.off_cpu, self.stacks) {
            (true, _) => (ProfileKind::OffCpu, OFF_CPU_RATE),
            (_, true) => (ProfileKind::Stacks, 1),
            _ => (ProfileKind::Cpu, CPU_RATE),
        };
        let default = self.program.is_empty().then_some(SECONDS);
        let seconds = if self.stacks { None } else { self.seconds.or(default) };
        ProfileQuery {
            kind,
            rate: self.rate.unwrap_or(rate),
            milliseconds: seconds.map(|seconds| (seconds * 1000.0) as u64),
        }
    }
}

/// Profiles the program and writes the result.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let format = args.format()?;
    let query = args.query();
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the command at once.
        flag::register_conditional_shutdown(signal, 128 + signal, ends.clone())
            .and_then(|_| flag::register(signal, ends.clone()))
            .map_err(|e| format!("signal {signal}: {e}"))?;
    }
    let machine = args.whose.machine()?;
    let (mut target, started) = match (&args.of, &args.program[..]) {
        (_, [name, words @ ..]) => match target::start(&machine, name, words, &ends)? {
            Ok((target, child)) => (target, Some(child)),
            Err(code) => return Ok(code),
        },
        (place, []) => (target::find(&machine, *place)?, None),
    };
    let begin = SystemTime::now();
    let recorded = record(&mut target, &query, &ends);
    if let (Err(_), None) = (&recorded, &started) {
        recorded?;
        return Ok(ExitCode::FAILURE);
    }
    let wrote = recorded.and_then(|(recording, names)| {
        let finished = Finished { query: &query, begin, space: &target.space, recording, names };
        finished.write(format, args.output.as_deref())
    });
    match started {
        None => wrote,
        // The program's own failure has precedence.
        Some(child) => match (target::wait(child)?, wrote) {
            (code, Err(why)) if code == ExitCode::SUCCESS => Err(why),
            (code, wrote) => {
                if let Err(why) = wrote {
                    eprintln!("kumi: {}", Plain(&why));
                }
                Ok(code)
            }
        },
    }
}

/// Receives the profile until it ends. A program that ends meanwhile leaves what it has sent.
fn record(
    target: &mut Target,
    query: &ProfileQuery,
    ends: &AtomicBool,
) -> Result<(Recording, Names), String> {
    let mut recording = Recording::new(query.kind);
    let mut names = Names::of(target.space.pid);
    let neighbour: &mut Neighbour = &mut target.neighbour;
    let done = neighbour
        .profile(query, &mut |item| recording.add(item), &mut || ends.load(Ordering::Relaxed));
    match done {
        Ok(()) => {}
        // The connection's end is that of the program.
        Err(Error::Gone(_)) if recording.progress.elapsed_ns > 0 => {}
        // For example, it was stopped.
        Err(error) if recording.progress.elapsed_ns > 0 => {
            eprintln!("kumi: {}; the profile ends here", Plain(&error.to_string()));
        }
        Err(Error::Refused(Refused::Invalid(text))) if text.contains("unknown variant") => {
            return Err(format!(
                "address space {} is of an older version of Kumihimo ({}), which has no profiles",
                target.space.id.location().space(),
                target.space.version
            ));
        }
        Err(error) => return Err(error.to_string()),
    }
    names.load(&recording.modules);
    Ok((recording, names))
}

/// A profile for a page.
pub(crate) struct Picture {
    /// The flame graph, an SVG picture without scripts.
    pub(crate) svg: String,
    /// Functions and stacks that use most.
    pub(crate) text: String,
}

/// Profiles an address space, and draws the result. Blocks the kernel thread for as long as the
/// profile takes.
///
/// # Errors
/// A line, if the address space cannot be profiled or nothing was found.
pub(crate) fn picture(mut neighbour: Neighbour, query: &ProfileQuery) -> Result<Picture, String> {
    let space = neighbour.space().map_err(|e| e.to_string())?;
    let mut target = Target { neighbour, space };
    let begin = SystemTime::now();
    let (recording, names) = record(&mut target, query, &AtomicBool::new(false))?;
    let mut finished = Finished { query, begin, space: &target.space, recording, names };
    if finished.recording.stacks.is_empty() {
        return Err(finished.why_empty());
    }
    let stacks = Resolved::all(&finished.recording, &mut finished.names);
    let (mut svg, mut text) = (Vec::new(), Vec::new());
    let (space, recording) = (finished.space, &finished.recording);
    flame::svg(&mut svg, flame::Scripts::No, space, query, recording, &stacks)
        .and_then(|()| report::text(&mut text, space, query, recording, &stacks))
        .map_err(|e| e.to_string())?;
    let string = |bytes| String::from_utf8(bytes).map_err(|e| e.to_string());
    Ok(Picture { svg: string(svg)?, text: string(text)? })
}

/// A complete profile.
struct Finished<'a> {
    query: &'a ProfileQuery,
    begin: SystemTime,
    space: &'a Space,
    recording: Recording,
    names: Names,
}

impl Finished<'_> {
    fn write(mut self, format: Format, output: Option<&Path>) -> Result<ExitCode, String> {
        if self.recording.stacks.is_empty() {
            return Err(self.why_empty());
        }
        let code = match output {
            None => {
                let mut out = io::stdout().lock();
                let done = self.put(format, &mut out);
                return written(done.map(|()| ExitCode::SUCCESS));
            }
            Some(output) => {
                let text = |e: io::Error| format!("{}: {e}", output.display());
                output_file::replace(output, |file| self.put(format, file).map_err(text))?;
                ExitCode::SUCCESS
            }
        };
        let output = output.unwrap_or(Path::new("")).display();
        eprintln!("kumi: {output}: {}", report::summary(&self.recording, self.query));
        match format {
            Format::Pprof => eprintln!("kumi: show it: go tool pprof -http : {output}"),
            Format::Svg => eprintln!("kumi: open it in a browser"),
            Format::Folded | Format::Text => {}
        }
        Ok(code)
    }

    fn put(&mut self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let waits = self.query.kind != ProfileKind::Cpu;
        if format == Format::Pprof {
            let mut calls = |frames: &[u64]| self.names.calls(frames, waits);
            let (begin, rate) = (self.begin, self.query.rate);
            let file = kumihimo_runtime::profile::encode(&self.recording, begin, rate, &mut calls);
            return out.write_all(&file);
        }
        let stacks = Resolved::all(&self.recording, &mut self.names);
        match format {
            Format::Text => report::text(out, self.space, self.query, &self.recording, &stacks),
            Format::Folded => report::folded(&stacks).iter().try_for_each(|l| writeln!(out, "{l}")),
            Format::Svg => {
                let scripts = flame::Scripts::Yes;
                flame::svg(out, scripts, self.space, self.query, &self.recording, &stacks)
            }
            Format::Pprof => Ok(()),
        }
    }

    /// Why there is nothing to show.
    fn why_empty(&self) -> String {
        let progress = self.recording.progress;
        let time = Duration::from_nanos(progress.elapsed_ns).as_secs_f64();
        let used =
            Duration::from_nanos(progress.process_cpu_ns.saturating_sub(progress.profiler_cpu_ns));
        match self.query.kind {
            ProfileKind::Cpu => format!(
                "no sample: the program used {:.0} ms of CPU time in {time:.1} s; kumi profile --off-cpu shows where it waits",
                used.as_secs_f64() * 1000.0
            ),
            ProfileKind::OffCpu => format!("no microprocess waited within {time:.1} s"),
            ProfileKind::Stacks => "the address space has no microprocesses".into(),
        }
    }
}
