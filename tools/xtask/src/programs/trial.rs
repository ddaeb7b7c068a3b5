//! One run of a program: plainly or under `kumi run`, watched until it ends.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kumihimo_hang::Watch;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::table::Program;
use crate::{Failure, workspace};

/// Interval between two looks at the kernel threads.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Interval between two looks for progress.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of consecutive looks without CPU use after which a program hangs.
const IDLE_LOOKS: u32 = 60;
/// Limit on the CPU time of a run, beyond that of its load: a program that spins.
const CPU_BOUND: Duration = Duration::from_secs(300);

/// How a program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    Plain,
    /// By `kumi run --strict`, with this event source, or the default one.
    Kumi {
        events: Option<String>,
    },
}

/// What all runs share.
#[derive(Debug)]
pub struct Bench {
    pub kumi: PathBuf,
    pub load_seconds: u64,
    /// Folder for all runs.
    pub folder: PathBuf,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit code, and what it printed through the filter.
    pub told: String,
    /// What it printed, before the filter.
    pub output: String,
    pub is_success: bool,
    /// Lines that `kumi run` printed, and programs that are in no report.
    pub complaints: Vec<String>,
    /// Threads that were microprocesses, and all threads.
    pub counts: (u64, u64),
    /// The greatest number of kernel threads of the program's processes together.
    pub kernel_threads: usize,
    /// Why it was ended, with the state of its processes.
    pub hang: Option<String>,
    pub time: Duration,
}

/// Runs the program. Its folder is removed at the next run of the same name.
pub fn run(bench: &Bench, program: &Program, how: &How) -> Result<Ended, Failure> {
    let folder = bench.folder.join(program.name);
    remove(&folder)?;
    fs::create_dir_all(&folder)?;
    let runtime = bench.folder.join("dir");
    remove(&runtime)?;
    fs::create_dir_all(&runtime)?;
    fs::set_permissions(&runtime, PermissionsExt::from_mode(0o700))?;
    let reports = bench.folder.join("reports");
    remove(&reports)?;
    fs::create_dir_all(&reports)?;
    let tools = bench.folder.join("tools");
    let marks = bench.folder.join("marks");
    remove(&marks)?;
    fs::create_dir_all(&marks)?;
    write_tools(&tools, bench, how, &runtime)?;

    let script = format!("{}\nexit $?\n", program.command);
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).current_dir(&folder);
    let path = std::env::var("PATH").unwrap_or_default();
    // The system's programs come before shims of version managers.
    command.env("PATH", format!("{}:/usr/bin:/usr/sbin:{path}", tools.display()));
    let files = workspace::root().join("tools/xtask/src/programs/scripts");
    command.env("FILES", &files).env("ROOT", workspace::root()).env("LC_ALL", "C.UTF-8");
    command.env("CACHE", bench.folder.join("cache"));
    command.env("LOAD_SECONDS", bench.load_seconds.to_string());
    for (name, port) in ["PORT", "PORT2", "PORT3"].into_iter().zip(free_ports()?) {
        command.env(name, port.to_string());
    }
    command.env_remove("KUMI_EVENTS").env_remove("LD_PRELOAD");
    let log = bench.folder.join("output");
    let output = File::create(&log)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    // SAFETY: setsid(2) may be called between fork and exec.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("bash: {e}"))?;
    let root = child.id();
    let mut watch = Watch::new(root);
    let mut sampler = Sampler { marks, known: HashMap::new(), most: 0 };
    let mut looked = Instant::now();
    let bound = CPU_BOUND + Duration::from_secs(4 * bench.load_seconds);
    let mut hang = None;
    let status = loop {
        std::thread::sleep(SAMPLE_EVERY);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sampler.look(root);
        if looked.elapsed() < LOOK_EVERY {
            continue;
        }
        looked = Instant::now();
        let idle = watch.look();
        let why = if idle >= IDLE_LOOKS {
            format!("no progress in {idle} looks, {} s apart", LOOK_EVERY.as_secs())
        } else if watch.cpu() > bound {
            format!("no end after {} s of CPU time", watch.cpu().as_secs())
        } else {
            continue;
        };
        hang = Some(describe(&why, root, &mut sampler, bench, &runtime));
        end_session(root);
        break child.wait()?;
    };
    let time = begun.elapsed();
    // Servers that a failed script has left.
    end_session(root);
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let (mut complaints, text) = split(&text);
    complaints.extend(complaints_in(&folder)?);
    if *how != How::Plain {
        complaints.extend(unreported(&sampler.marks, &reports)?);
    }
    let filtered = filter(program.filter, &text)?;
    Ok(Ended {
        told: format!("{status}\n{filtered}"),
        output: text,
        is_success: status.success(),
        complaints,
        counts: counts(&reports)?,
        kernel_threads: sampler.most,
        hang,
        time,
    })
}

/// The commands `run` and `load` of the scripts. The first one replaces itself by the program, so
/// that its process ID is the program's. It leaves a mark of this name.
fn write_tools(tools: &Path, bench: &Bench, how: &How, runtime: &Path) -> Result<(), Failure> {
    remove(tools)?;
    fs::create_dir_all(tools)?;
    let folder = bench.folder.display();
    let start = match how {
        How::Plain => "exec \"$@\"".to_owned(),
        How::Kumi { events } => {
            let events = events.as_ref().map_or_else(String::new, |e| format!("KUMI_EVENTS={e} "));
            let (runtime, kumi) = (runtime.display(), bench.kumi.display());
            format!(
                "exec env KUMI_DIR={runtime} {events}{kumi} run --strict \
                 --report {folder}/reports/$$ \"$@\""
            )
        }
    };
    let run = format!(": >{folder}/marks/$$\n{start}\n");
    let own = std::env::current_exe()?;
    let load = format!("exec {} programs-load \"$@\" 2>load.log\n", own.display());
    for (name, text) in [("run", run), ("load", load)] {
        let path = tools.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}"))?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()).into())
        }
        _ => Ok(()),
    }
}

/// Ports that were free a moment ago.
fn free_ports() -> Result<[u16; 3], Failure> {
    let mut listeners = Vec::new();
    let mut ports = [0; 3];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// Ends all processes of the session that `root` leads.
fn end_session(root: u32) {
    for process in kumihimo_hang::family(root) {
        if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    if let Some(group) = i32::try_from(root).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Separates what `kumi run` prints from what the program prints.
fn split(text: &str) -> (Vec<String>, String) {
    let mut complaints = Vec::new();
    let mut rest = String::new();
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("kumi run: ") {
            Some(_) => complaints.push(line.trim_end().to_owned()),
            None => rest.push_str(line),
        }
    }
    (complaints, rest)
}

/// The lines of `kumi run` in the files of the run's folder, where scripts send what servers print.
fn complaints_in(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut complaints = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let text = fs::read(entry.path())?;
            complaints.extend(split(&String::from_utf8_lossy(&text)).0);
        }
    }
    Ok(complaints)
}

/// Programs that `run` has started and that have no line in a report: the libraries were not in
/// them.
fn unreported(marks: &Path, reports: &Path) -> Result<Vec<String>, Failure> {
    let mut missing = Vec::new();
    for entry in fs::read_dir(marks)? {
        let process = entry?.file_name();
        if !fs::metadata(reports.join(&process)).is_ok_and(|report| report.len() > 0) {
            missing.push(format!("process {} is in no report", process.to_string_lossy()));
        }
    }
    Ok(missing)
}

fn filter(command: &str, text: &str) -> Result<String, Failure> {
    if command.is_empty() {
        return Ok(text.to_owned());
    }
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = shell.spawn()?;
    let mut input = child.stdin.take().expect("a pipe");
    let text = text.to_owned();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, text.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().expect("no panic")?;
    if !output.status.success() {
        return Err(format!("the filter `{command}`: {}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sums of the lines in all reports.
fn counts(reports: &Path) -> Result<(u64, u64), Failure> {
    let mut sums = (0, 0);
    for entry in fs::read_dir(reports)? {
        for line in fs::read_to_string(entry?.path())?.lines() {
            let (micro, all) = counted(line).ok_or_else(|| format!("the report has: {line}"))?;
            sums.0 += micro;
            sums.1 += all;
        }
    }
    Ok(sums)
}

/// The numbers in a line of a report.
fn counted(line: &str) -> Option<(u64, u64)> {
    let (micro, rest) = line.split_once(" of the ")?;
    let (all, _) = rest.split_once(" threads of process ")?;
    Some((micro.parse().ok()?, all.parse().ok()?))
}

/// Counts the kernel threads of the program's processes.
#[derive(Debug)]
struct Sampler {
    /// A file for each process that `run` has started.
    marks: PathBuf,
    /// Whether a process is one of the program, for those that were looked at.
    known: HashMap<u32, bool>,
    most: usize,
}

impl Sampler {
    fn look(&mut self, root: u32) {
        let threads = self.processes(root).into_iter().map(threads_of).sum();
        self.most = self.most.max(threads);
    }

    /// The processes of the program: those that `run` has started, and their descendants.
    fn processes(&mut self, root: u32) -> Vec<u32> {
        let mut family = kumihimo_hang::family(root);
        family.retain(|&process| {
            let was_own = |process: u32| self.known.get(&process).copied().unwrap_or(false);
            let is_own = was_own(process)
                || self.marks.join(process.to_string()).exists()
                || was_own(parent(process));
            self.known.insert(process, is_own);
            is_own
        });
        family
    }
}

/// The parent of a process; 0 if it has ended (proc_pid_stat(5)).
fn parent(process: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    fields.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn threads_of(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/task")).map_or(0, |tasks| tasks.flatten().count())
}

/// What `kumi ps`, procfs and gdb tell about a run that hangs.
fn describe(why: &str, root: u32, sampler: &mut Sampler, bench: &Bench, runtime: &Path) -> String {
    let mut text = format!("{why}\n");
    let ps = Command::new("timeout")
        .args(["20".as_ref(), bench.kumi.as_os_str(), "ps".as_ref()])
        .env("KUMI_DIR", runtime)
        .output();
    if let Ok(output) = ps {
        text.push_str(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    }
    for process in sampler.processes(root) {
        text.push_str(&kumihimo_hang::report(process));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_report_is_counted() {
        let line =
            "00000012 of the 00000013 threads of process 77 (a of the b) were microprocesses ";
        assert_eq!(counted(line), Some((12, 13)));
        assert_eq!(counted("kumi run"), None);
    }

    #[test]
    fn lines_of_the_command_are_no_output() {
        let (complaints, rest) = split("a\nkumi run: no\nthe kumi run: b\n");
        assert_eq!(complaints, ["kumi run: no"]);
        assert_eq!(rest, "a\nthe kumi run: b\n");
    }

    #[test]
    fn output_goes_through_the_filter() {
        assert_eq!(filter("sort | tr a b", "c\na\n").unwrap(), "b\nc\n");
        assert_eq!(filter("", "c\na\n").unwrap(), "c\na\n");
        let why = filter("cat >/dev/null; exit 3", "c\na\n").unwrap_err().to_string();
        assert!(why.contains("exit status: 3"), "{why}");
    }

    #[test]
    fn complaints_in_logs_of_servers_are_found() {
        let scratch = super::super::Scratch::new().unwrap();
        fs::write(scratch.0.join("server.log"), "ready\nkumi run: no\n").unwrap();
        fs::write(scratch.0.join("file"), [0xff, b'\n']).unwrap();
        assert_eq!(complaints_in(&scratch.0).unwrap(), ["kumi run: no"]);
    }

    #[test]
    fn program_without_a_line_in_a_report_is_named() {
        let scratch = super::super::Scratch::new().unwrap();
        let (marks, reports) = (scratch.0.join("marks"), scratch.0.join("reports"));
        fs::create_dir_all(&marks).unwrap();
        fs::create_dir_all(&reports).unwrap();
        for process in ["1", "2", "3"] {
            fs::write(marks.join(process), "").unwrap();
        }
        fs::write(reports.join("1"), "a line\n").unwrap();
        fs::write(reports.join("2"), "").unwrap();
        let mut missing = unreported(&marks, &reports).unwrap();
        missing.sort();
        assert_eq!(missing, ["process 2 is in no report", "process 3 is in no report"]);
    }
}
