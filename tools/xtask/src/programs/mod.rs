//! `cargo xtask programs`: real programs under `kumi run`, beside what they do plainly.
//!
//! Each entry of the [`table`] is a shell command that ends with the same output however its
//! threads run: data that is read back, sums, verdicts of the program's own tests. The command runs
//! plainly, then under `kumi run --strict` with the default event source and with the others.
//! A run passes with the plain run's output and exit code, without a complaint of `kumi run`, and
//! with nine tenths of its threads as microprocesses.
//!
//! The results are kept in `results.json`, from which `--page` writes a page of the book.

mod load;
mod page;
mod table;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::report::Report;
use crate::{Failure, workspace};
pub use load::Load;
use page::Record;
use table::{Program, TABLE, Threads};
use trial::{Bench, Ended, How};

/// Event sources beside the default one, which is the best that the machine has. `off` only by its
/// name: a wait in a call that is not replaced keeps its VP there (`limits/run.md`).
const SOURCES: [&str; 4] = ["bpf", "perf", "watch", "off"];
/// Duration of the load in a run that is repeated, in seconds.
const SHORT: u64 = 5;
/// The share of the threads that must be microprocesses, in per cent.
const LEAST: u64 = 90;

#[derive(clap::Args)]
pub struct Args {
    /// Runs of each program with the default event source
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// Runs of each program with each other event source
    #[arg(long, default_value_t = 0)]
    others: usize,
    /// Other event sources: bpf, perf, watch, off [default: all but off]
    #[arg(long, value_delimiter = ',')]
    sources: Vec<String>,
    /// Seconds of load of a server in the first run with each event source; 5 in the others
    #[arg(long, default_value_t = SHORT)]
    load_seconds: u64,
    /// Build and use the release profile
    #[arg(long)]
    release: bool,
    /// Keep the results, and write the page of the book from them
    #[arg(long)]
    page: bool,
    /// Print the names of all programs
    #[arg(long)]
    list: bool,
    /// Run only programs whose name contains one of these
    only: Vec<String>,
}

/// Builds, runs and reports. The exit code is 0 if something ran and nothing failed.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.list {
        TABLE.iter().for_each(|program| println!("{}", program.name));
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::default();
    run_table(args, &mut report)?;
    println!("\n== summary");
    Ok(report.finish())
}

/// The short form, for `cargo xtask check`: each program once.
pub fn check(report: &mut Report) -> Result<(), Failure> {
    let args = Args {
        times: 1,
        others: 0,
        sources: Vec::new(),
        load_seconds: SHORT,
        release: false,
        page: false,
        list: false,
        only: Vec::new(),
    };
    run_table(&args, report)
}

fn run_table(args: &Args, report: &mut Report) -> Result<(), Failure> {
    let kumi = build(args.release)?;
    // Here: the sources may change while the programs run.
    let build_name = build_name(args.release)?;
    let sources = other_sources(args, &kumi, report)?;
    let mut records = page::read()?;
    for program in TABLE {
        if !args.only.is_empty() && !args.only.iter().any(|part| program.name.contains(part)) {
            continue;
        }
        if let Some(package) = missing(program) {
            report
                .skip(&format!("program {}", program.name), &format!("apt-get install {package}"));
            continue;
        }
        let scratch = Scratch::new()?;
        let bench = |seconds| Bench {
            kumi: kumi.clone(),
            load_seconds: seconds,
            folder: scratch.0.clone(),
        };
        let version = version(program);
        println!("== {} {version}", program.name);
        let record = Record::new(version, build_name.clone());
        let record = run_program(program, record, args, &sources, &bench, report)?;
        if args.page {
            records.insert(program.name.to_owned(), record);
            page::write(&records)?;
        }
    }
    if args.page {
        // The table may have changed since.
        page::write(&records)?;
    }
    Ok(())
}

/// The scripts of the table, for shellcheck.
pub fn scripts() -> Result<Vec<PathBuf>, Failure> {
    let folder = workspace::root().join("tools/xtask/src/programs/scripts");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut scripts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "sh"));
    scripts.sort();
    Ok(scripts)
}

/// Builds what runs, and returns the path of `kumi`. The libraries lie beside it.
fn build(is_release: bool) -> Result<PathBuf, Failure> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "-p", "kumi", "-p", "kumihimo-run", "-p", "kumihimo-preload"]);
    if is_release {
        cargo.arg("--release");
    }
    let status = cargo.stdin(Stdio::null()).status().map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("kumi does not build: {status}").into());
    }
    let profile = if is_release { "release" } else { "debug" };
    Ok(fs::canonicalize(workspace::target().join(profile).join("kumi"))?)
}

/// The build that runs, for the page: profile and commit.
fn build_name(is_release: bool) -> Result<String, Failure> {
    let git = |words: &[&str]| -> Result<String, Failure> {
        let output = Command::new("git").current_dir(workspace::root()).args(words).output()?;
        if !output.status.success() {
            return Err(format!("git {}: {}", words.join(" "), output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=8", "HEAD"])?;
    // The page and its results change while they are made.
    let changed = git(&["status", "--porcelain", "--", "crates", "tools/kumi", "Cargo.lock"])?;
    let changes = if changed.is_empty() { "" } else { " with changes" };
    let profile = if is_release { "release" } else { "debug" };
    Ok(format!("{profile}, {commit}{changes}"))
}

/// The other event sources that are to be run. Those that the machine lacks are skipped.
fn other_sources(args: &Args, kumi: &Path, report: &mut Report) -> Result<Vec<String>, Failure> {
    let unknown = args.sources.iter().find(|source| !SOURCES.contains(&source.as_str()));
    if let Some(unknown) = unknown {
        return Err(format!("no event source {unknown}: there are {}", SOURCES.join(", ")).into());
    }
    match (args.others, args.sources.is_empty()) {
        (0, true) => return Ok(Vec::new()),
        (0, false) => return Err("--sources needs --others".into()),
        _ => {}
    }
    let refused = crate::test::refused_sources(kumi)?;
    let mut sources = Vec::new();
    for source in SOURCES {
        let is_wanted = match args.sources.is_empty() {
            true => source != "off",
            false => args.sources.iter().any(|own| own == source),
        };
        match refused.iter().find(|(name, _)| name == source) {
            _ if !is_wanted => {}
            None => sources.push(source.to_owned()),
            Some((_, why)) => report.skip(&format!("programs with events of {source}"), why),
        }
    }
    Ok(sources)
}

/// The Debian package of a command that the program needs and that is not there.
fn missing(program: &Program) -> Option<&'static str> {
    let is_there = |command: &str| {
        let probe = match command.strip_prefix('!') {
            Some(probe) => probe.to_owned(),
            None => format!("command -v {command}"),
        };
        system_shell(&probe).stderr(Stdio::null()).output().is_ok_and(|out| out.status.success())
    };
    program.needs.iter().find(|(command, _)| !is_there(command)).map(|(_, package)| *package)
}

/// A shell with the search path of the runs.
fn system_shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.arg("-c").arg(command).stdin(Stdio::null());
    shell.env("PATH", format!("/usr/bin:/usr/sbin:{path}"));
    shell
}

fn version(program: &Program) -> String {
    let output = system_shell(program.version).output();
    let text = output.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or("?").trim().to_owned()
}

/// Runs one program in all ways, and adds the outcomes to its record.
fn run_program(
    program: &Program,
    mut record: Record,
    args: &Args,
    sources: &[String],
    bench: &dyn Fn(u64) -> Bench,
    report: &mut Report,
) -> Result<Record, Failure> {
    // As long as the longest run, because a long load may change what the program does.
    let plain = trial::run(&bench(args.load_seconds), program, &How::Plain)?;
    println!("{} plainly: {:.1} s", program.name, plain.time.as_secs_f64());
    record.plain_kernel_threads = plain.kernel_threads;
    // The exit status is a line as well.
    let prints_nothing = plain.told.lines().count() < 2;
    if !plain.is_success || plain.hang.is_some() || prints_nothing {
        println!("{}", if prints_nothing { "prints nothing to compare" } else { &plain.told });
        println!("{}", plain.hang.unwrap_or_default());
        report.step(&format!("program {}: plainly", program.name), false, plain.time);
        record.failures.push("fails plainly".to_owned());
        return Ok(record);
    }
    let ways = std::iter::once((None, args.times))
        .chain(sources.iter().map(|source| (Some(source.clone()), args.others)))
        .filter(|(_, times)| *times > 0);
    for (events, times) in ways {
        let name = events.as_deref().unwrap_or("default").to_owned();
        let how = How::Kumi { events };
        let mut time = Duration::ZERO;
        let mut failures = Vec::new();
        let mut differs_as_known = 0;
        for number in 0..times {
            let seconds = if number == 0 { args.load_seconds } else { SHORT };
            let ended = trial::run(&bench(seconds), program, &how)?;
            time += ended.time;
            record.add(&ended);
            let (micro, all) = ended.counts;
            let most = ended.kernel_threads;
            println!(
                "{} {name} {}: {micro} of {all} threads, {most} kernel threads, {:.1} s",
                program.name,
                number + 1,
                ended.time.as_secs_f64()
            );
            let why = failure(program, &plain, &ended);
            if why.is_some() && is_known(program, &plain, &ended) {
                println!("{} {name} {}: differs as known", program.name, number + 1);
                differs_as_known += 1;
            } else if let Some(why) = why {
                println!("FAILED {} {name}: {why}", program.name);
                let log = keep(program, &name, number, &plain, &ended, &why)?;
                println!("details: {}", log.display());
                failures.push(why.lines().next().unwrap_or_default().to_owned());
            }
        }
        record.runs.push((name.clone(), times, failures.len() + differs_as_known));
        let step = format!("program {} with events of {name}", program.name);
        match program.known {
            // The others did what the plain run does, or failed in another way.
            Some(known) if failures.is_empty() && differs_as_known > 0 => {
                report.skip(&step, &format!("known: {}", known.why));
            }
            Some(known) if failures.is_empty() && name == "default" => {
                println!("FAILED {}: passes, but is marked: {}", program.name, known.why);
                report.step(&step, false, time);
            }
            _ => report.step(&step, failures.is_empty(), time),
        }
        record.failures.extend(failures);
    }
    Ok(record)
}

/// Why a run differs from the plain one.
fn failure(program: &Program, plain: &Ended, ended: &Ended) -> Option<String> {
    if let Some(hang) = &ended.hang {
        return Some(format!("hangs: {hang}"));
    }
    if let Some(complaint) = ended.complaints.first() {
        return Some(format!("kumi run: {complaint}"));
    }
    if ended.told != plain.told {
        return Some(difference(&plain.told, &ended.told));
    }
    let (micro, all) = ended.counts;
    match program.threads {
        Threads::Some if all == 0 => Some("creates no threads".to_owned()),
        Threads::Some if micro * 100 < all * LEAST => {
            Some(format!("{micro} of {all} threads were microprocesses"))
        }
        Threads::None if all > 0 => {
            Some(format!("creates {all} threads, and is marked as without"))
        }
        _ => None,
    }
}

/// Whether the known lines are all that differs.
fn is_known(program: &Program, plain: &Ended, ended: &Ended) -> bool {
    let Some(known) = program.known else { return false };
    let expected: String = plain
        .told
        .lines()
        .map(|line| known.lines.iter().find(|pair| pair.0 == line).map_or(line, |pair| pair.1))
        .map(|line| format!("{line}\n"))
        .collect();
    let expected = Ended { told: expected, ..plain.clone() };
    failure(program, &expected, ended).is_none()
}

/// The first lines that differ.
fn difference(plain: &str, told: &str) -> String {
    let (mut left, mut right) = (plain.lines(), told.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return "the output differs in its end".to_owned(),
            (left, right) if left == right => {}
            (left, right) => {
                let show = |line: Option<&str>| line.unwrap_or("(no line)").to_owned();
                return format!("`{}` instead of `{}`", show(right), show(left));
            }
        }
    }
}

/// Keeps both outputs of a failed run.
fn keep(
    program: &Program,
    source: &str,
    number: usize,
    plain: &Ended,
    ended: &Ended,
    why: &str,
) -> Result<PathBuf, Failure> {
    let folder = workspace::target().join("programs");
    fs::create_dir_all(&folder)?;
    let log = folder.join(format!("{}-{source}-{}.log", program.name, number + 1));
    let complaints = ended.complaints.join("\n");
    let text = format!(
        "{why}\n\n== kumi run\n{complaints}\n{}\n== plainly\n{}\n== kumi run, all\n{}",
        ended.told, plain.told, ended.output
    );
    fs::write(&log, text)?;
    Ok(log)
}

/// A folder for the runs of a program, with a short path: paths of sockets are limited to 107 bytes
/// (unix(7)).
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("programs-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("cache"))?;
        // Servers that give up root enter it.
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        fs::set_permissions(
            folder.join("cache"),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::table::{Known, cpython};
    use super::*;

    fn ended(told: &str, counts: (u64, u64)) -> Ended {
        Ended {
            told: told.to_owned(),
            output: told.to_owned(),
            is_success: true,
            complaints: Vec::new(),
            counts,
            kernel_threads: 1,
            hang: None,
            time: Duration::ZERO,
        }
    }

    #[test]
    fn run_passes_with_the_output_of_the_plain_one() {
        let program = &TABLE[0];
        let plain = ended("a\nb\n", (0, 0));
        assert_eq!(failure(program, &plain, &ended("a\nb\n", (9, 10))), None);
        let why = failure(program, &plain, &ended("a\nc\n", (10, 10))).unwrap();
        assert_eq!(why, "`c` instead of `b`");
        let why = failure(program, &plain, &ended("a\n", (10, 10))).unwrap();
        assert_eq!(why, "`(no line)` instead of `b`");
    }

    #[test]
    fn only_the_known_lines_are_excused() {
        let known =
            Known { why: "", lines: &[("status 0", "status 2"), ("x passed", "x failure")] };
        let program = Program { known: Some(known), ..cpython("test", "", "") };
        let plain = ended("status 0\nx passed\ny passed\n", (0, 0));
        let run = |told: &str, counts| is_known(&program, &plain, &ended(told, counts));
        assert!(run("status 2\nx failure\ny passed\n", (10, 10)));
        assert!(!run("status 2\nx failure\ny failure\n", (10, 10)));
        assert!(!run("status 2\nx failure\n", (10, 10)));
        assert!(!run("status 2\nx failure\ny passed\n", (1, 10)));
        let mut hang = ended("status 2\nx failure\ny passed\n", (10, 10));
        hang.hang = Some("no progress".to_owned());
        assert!(!is_known(&program, &plain, &hang));
    }

    #[test]
    fn run_with_few_microprocesses_fails() {
        let program = &TABLE[0];
        let plain = ended("", (0, 0));
        let why = failure(program, &plain, &ended("", (8, 10))).unwrap();
        assert_eq!(why, "8 of 10 threads were microprocesses");
        assert_eq!(failure(program, &plain, &ended("", (0, 0))).unwrap(), "creates no threads");
    }

    #[test]
    fn run_fails_that_complains_or_hangs() {
        let program = &TABLE[0];
        let plain = ended("", (0, 0));
        let mut complaint = ended("", (1, 1));
        complaint.complaints.push("no microprocesses here".to_owned());
        assert!(failure(program, &plain, &complaint).is_some());
        let mut hang = ended("", (1, 1));
        hang.hang = Some("no progress".to_owned());
        assert_eq!(failure(program, &plain, &hang).unwrap(), "hangs: no progress");
    }

    #[test]
    fn names_are_unique_and_scripts_are_there() {
        let mut names: Vec<_> = TABLE.iter().map(|program| program.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        let scripts = workspace::root().join("tools/xtask/src/programs/scripts");
        for program in TABLE {
            for part in program.command.split("$FILES/").skip(1) {
                let name = part.split([' ', '"']).next().unwrap_or_default();
                assert!(scripts.join(name).is_file(), "{}: {name}", program.name);
            }
        }
    }
}
