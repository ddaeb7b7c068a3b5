//! Runs one test program, and kills it when it makes no more progress.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumihimo_hang::Watch;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::libtest::{self, Run};
use super::plan::Job;
use crate::report::Counts;
use crate::{Failure, workspace};

/// Interval between checks of a running program.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of consecutive checks without CPU use after which a program is considered hung. Twice the
/// limit of a test that watches its own child process (`kumihimo_tests::process`), so that the test
/// reports first.
const IDLE_LOOKS: u32 = 120;
/// Limit on a program's CPU time between the ends of two tests. Unlike elapsed time, it is
/// independent of the machine's load.
const CPU_BOUND: Duration = Duration::from_secs(900);

/// Lines of each failed test that the end of a run's output repeats.
const BRIEF: usize = 4;

/// Result of a job.
#[derive(Debug)]
pub struct Ended {
    pub job: Job,
    pub passed: usize,
    pub failed: usize,
    pub skipped: BTreeSet<String>,
    /// Description of the failure; empty if there is none.
    pub failure: String,
    pub time: Duration,
    /// CPU time of the program and of the child processes that it has waited for.
    pub cpu: Duration,
    /// The slowest tests, in descending order.
    pub slowest: Vec<(f64, String)>,
    /// Tests that failed, or that were running when the program died.
    pub failed_tests: Vec<String>,
    pub log: PathBuf,
}

impl Ended {
    /// The counts without details.
    pub fn counts(&self) -> Counts {
        let skipped = self.skipped.len();
        Counts { passed: self.passed, failed: self.failed, skipped }
    }

    /// Prints a line with the counts, and the failures.
    pub fn print(&self) {
        for what in &self.skipped {
            println!("[skip] {what}");
        }
        let Counts { passed, failed, skipped } = self.counts();
        let (name, seconds) = (self.job.binary.name(), self.time.as_secs_f64());
        let cpu = self.cpu.as_secs_f64();
        let row = if self.job.environment.is_empty() { "" } else { &self.job.suite };
        println!(
            "{name}: {passed} passed, {failed} failed, {skipped} skipped, {seconds:.1} s, CPU {cpu:.1} s {row}"
        );
        if !self.failure.is_empty() {
            println!("{}", self.failure);
        }
    }

    /// The suite, the program and its failed tests, then some lines about each of these.
    pub fn failed_briefly(&self) -> String {
        let (suite, program, tests) =
            (&self.job.suite, self.job.binary.name(), self.failed_tests.join(", "));
        format!("{suite}: {program}: {tests}\n{}", briefly(&self.failure))
    }
}

/// Begin of what [`judge`] writes about a failed test.
const TEST: &str = "---- ";

/// At most `BRIEF` lines about each test in `failure`, from its last panic on if it has one. If a
/// test runs itself in a child process, that is the child's panic.
fn briefly(failure: &str) -> String {
    let lines: Vec<&str> = failure.lines().collect();
    let tests = lines.chunk_by(|_, next| !next.starts_with(TEST));
    let of_test = |lines: &[&str]| -> String {
        let from = lines.iter().rposition(|line| line.contains("panicked at")).unwrap_or(0);
        lines[from..].iter().take(BRIEF).map(|line| format!("  {line}\n")).collect()
    };
    tests.map(of_test).collect()
}

/// Runs `job` to completion. Blocks the kernel thread.
pub fn run(job: Job, number: usize) -> Result<Ended, Failure> {
    let log = log_path(&job, number)?;
    let file = Arc::new(Mutex::new(File::create(&log)?));
    let place = Place::new(number)?;
    let begun = Instant::now();
    let mut command = Command::new(&job.binary.path);
    command.args(&job.arguments).args(libtest::ARGUMENTS).current_dir(&job.binary.folder);
    // Variables that cargo sets for a test program and that tests read.
    command
        .env("CARGO_MANIFEST_DIR", &job.binary.folder)
        .env("CARGO_PKG_NAME", &job.binary.package)
        .env("KUMI_TEST_PACKAGES", &job.binary.packages);
    command.env("RUSTC_BOOTSTRAP", "1").env("KUMI_DIR", &place.0);
    if job.is_brief {
        command.env("KUMI_TEST_BRIEF", "1");
    }
    command.envs(job.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", job.binary.path.display()))?;
    let pid = child.id();
    let state = Arc::new(Mutex::new(State { run: Run::default(), ends: 0 }));
    let (closed, streams) = mpsc::channel::<()>();
    let out: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("a pipe"));
    let err: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("a pipe"));
    for stream in [out, err] {
        let (state, file, closed) = (state.clone(), file.clone(), closed.clone());
        std::thread::spawn(move || {
            copy(stream, &state, &file);
            drop(closed);
        });
    }
    drop(closed);

    let mut watch = Watch::new(pid);
    let (mut ends, mut at_end) = (0, Duration::ZERO);
    let (mut hang, mut cpu) = (None, Duration::ZERO);
    let status = loop {
        // Usually both streams end with the program, so there is no delay until the next check.
        let over = matches!(streams.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Disconnected));
        if has_ended(pid)? {
            cpu = cpu_with_children(pid);
            break child.wait()?;
        }
        if over {
            // The program closed the streams itself, or is about to exit.
            std::thread::sleep(Duration::from_millis(1));
        }
        let idle = watch.look();
        let now = state.lock().expect("no reader panics").ends;
        if now != ends {
            (ends, at_end) = (now, watch.cpu());
        }
        let spun = watch.cpu().saturating_sub(at_end);
        if idle >= IDLE_LOOKS || spun > CPU_BOUND {
            let why = if idle >= IDLE_LOOKS {
                format!("no progress in {idle} looks, {} s apart", LOOK_EVERY.as_secs())
            } else {
                format!("no test ended in {} s of CPU time", spun.as_secs())
            };
            hang = Some(describe(pid, &why, &state));
            end_group(pid);
            break child.wait()?;
        }
    };
    // A child process that was left running keeps the streams open.
    let left = kumihimo_hang::family(pid).into_iter().filter(|&process| process != pid).count();
    end_group(pid);
    let _ = streams.recv_timeout(Duration::from_secs(5));
    let ended = Found { status, hang, left };
    let run = std::mem::take(&mut state.lock().expect("no reader panics").run);
    Ok(Ended { cpu, ..judge(job, run, &ended, begun.elapsed(), log) })
}

/// Returns whether the child process has ended, and leaves it a zombie.
fn has_ended(pid: u32) -> Result<bool, Failure> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("a child without an ID")?;
    let status = rustix::process::waitid(WaitId::Pid(pid), options);
    Ok(status.map_err(|e| format!("waitid: {e}"))?.is_some())
}

/// Returns the CPU time of a process that has not been reaped, with that of its reaped child
/// processes: `utime` to `cstime` of proc_pid_stat(5).
fn cpu_with_children(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may contain spaces. `utime` is the 12th field after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

struct State {
    run: Run,
    /// Number of tests that have ended.
    ends: usize,
}

struct Found {
    status: ExitStatus,
    hang: Option<String>,
    left: usize,
}

/// Processes a stream line by line until it ends.
fn copy(stream: impl Read, state: &Mutex<State>, log: &Mutex<File>) {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let _ = log.lock().expect("no reader panics").write_all(&line);
        let text = String::from_utf8_lossy(&line);
        let mut state = state.lock().expect("no reader panics");
        if state.run.line(text.trim_end()) {
            state.ends += 1;
        }
        line.clear();
    }
}

/// Description of a hang: the running tests, and the state of each process of the group.
fn describe(pid: u32, why: &str, state: &Mutex<State>) -> String {
    let running: Vec<String> =
        state.lock().expect("no reader panics").run.running.iter().cloned().collect();
    let mut text = format!("hangs: {why}; running: {}\n", running.join(", "));
    for process in kumihimo_hang::family(pid) {
        let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        text.push_str(&format!("process {process}: {command}\n"));
        text.push_str(&kumihimo_hang::report(process));
    }
    text
}

/// Kills the remaining processes of the group that `pid` leads.
fn end_group(pid: u32) {
    let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // ESRCH: usually no process is left.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

fn judge(job: Job, mut run: Run, found: &Found, took: Duration, log: PathBuf) -> Ended {
    let mut failure = String::new();
    let mut failed = run.failed.len();
    for (name, said) in &run.failed {
        failure.push_str(&format!("{TEST}{} {name}\n{said}\n", job.binary.name()));
    }
    if let Some(hang) = &found.hang {
        failed += 1;
        failure.push_str(hang);
    } else if !run.ended {
        failed += run.running.len().max(1);
        let running: Vec<&str> = run.running.iter().map(String::as_str).collect();
        let (name, running) = (job.binary.name(), running.join(", "));
        failure.push_str(&format!("{name} died: {}; running: {running}\n", found.status));
        failure.push_str(&tail(&log));
    } else if !found.status.success() && failed == 0 {
        failed += 1;
        failure.push_str(&format!("{}: {}\n", job.binary.name(), found.status));
        failure.push_str(&tail(&log));
    }
    if found.left > 0 && !failure.is_empty() {
        failure.push_str(&format!(
            "{} processes were left running and have been killed\n",
            found.left
        ));
    }
    if !failure.is_empty() {
        failure.push_str(&format!("full output: {}\n", log.display()));
    }
    let passed = run.passes();
    let failed_tests = run.failed.into_iter().map(|(name, _)| name).chain(run.running).collect();
    run.seconds.sort_by(|a, b| b.0.total_cmp(&a.0));
    run.seconds.truncate(3);
    let (time, slowest, cpu) = (took, run.seconds, Duration::ZERO);
    let skipped = run.skipped;
    Ended { passed, failed, skipped, failure, time, cpu, slowest, failed_tests, log, job }
}

/// The last 40 lines of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(40)..];
    format!("the end of it:\n{}\n", last.join("\n"))
}

fn log_path(job: &Job, number: usize) -> Result<PathBuf, Failure> {
    let folder = workspace::target().join("suites");
    std::fs::create_dir_all(&folder)?;
    let name = job.binary.name().replace('/', "-");
    let name = if job.environment.is_empty() { name } else { format!("{name}-{number}") };
    Ok(folder.join(name + ".log"))
}

/// A run-time directory for each job, so that address spaces of concurrent jobs neither see each
/// other nor share a board.
struct Place(PathBuf);

impl Place {
    fn new(number: usize) -> Result<Self, Failure> {
        // A short path: it is part of the paths of sockets, which are limited to 107 bytes
        // (unix(7)).
        let path = std::env::temp_dir().join(format!("kumi-{}-{number}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_an_ended_program_has_that_of_its_children() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("sh -c '{spin}'; :"))
            .spawn()
            .expect("a shell");
        while !has_ended(child.id()).expect("a child") {
            std::thread::yield_now();
        }
        let cpu = cpu_with_children(child.id());
        assert!(child.wait().expect("a child").success());
        assert!(cpu > Duration::ZERO, "{cpu:?}");
        assert_eq!(cpu_with_children(child.id()), Duration::ZERO, "it is reaped");
    }

    #[test]
    fn each_failed_test_is_told_from_its_last_panic_on() {
        let long = "x\n".repeat(40);
        let failure = format!(
            "---- kumi/run a\nthread 'a' panicked at a.rs:1:1:\n  | thread 'b' panicked at \
             b.rs:2:2:\n  | no\n{long}---- kumi/run c\nfirst\nthread 'c' panicked at c.rs:3:3:\n"
        );
        let brief = briefly(&failure);
        let wanted = "    | thread 'b' panicked at b.rs:2:2:\n    | no\n  x\n  x\n  \
                      thread 'c' panicked at c.rs:3:3:\n";
        assert_eq!(brief, wanted);
        assert_eq!(briefly("hangs: no progress\n"), "  hangs: no progress\n");
        assert_eq!(briefly(""), "");
    }
}
