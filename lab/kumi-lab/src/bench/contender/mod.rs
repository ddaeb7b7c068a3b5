//! Contenders: separate programs, started fresh for each run, on as many cores as they have VPs.
//!
//! - `rivals`, `java`: build the rivals' programs; `redis`, `installed`: use installed ones.
//! - `product`: builds what stands beside this program; `interposed`: the libraries of `kumi run`.
//! - `program`: a process that exchanges lines; `pair`: a server and its load; `terminal`: a
//!   program in a pseudo-terminal.
//! - `directory`, `place`: directories shared by processes.
//!
//! A [`Contender`] of `plan` becomes a command line, and the output of its process becomes samples.
//! From the rest of the crate, this module uses only the rows of `report`.

pub mod directory;
pub mod installed;
pub mod interposed;
pub mod java;
pub mod pair;
pub mod place;
pub mod product;
pub mod program;
pub mod redis;
pub mod rivals;
pub mod terminal;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub use kumi::host::description::own_cores;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::report::row::{Identity, Sample};

/// Time limit of a run.
const PATIENCE: Duration = Duration::from_secs(180);

/// Output file of traced contenders.
pub const TRACE: &str = "/dev/null";

/// The program of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    Kumihimo,
    Go,
    Tokio,
    Std,
    /// Coroutines in Rust that share thread-local storage: the crate `may`.
    May,
    /// Fibers in C++ that share thread-local storage: Boost.Fiber.
    Boost,
    /// Virtual threads in Java.
    Java,
    /// The program of `Std` with `kumihimo::interpose!()`. `unwrapped` only.
    Interposed,
    /// A minimal server in C, as a lower bound of costs. `echo` only.
    Floor,
    /// The kernel's own processes, memory and pipes, in C. `resources` only.
    Linux,
    /// An installed program that is not built here. `kv` only.
    Redis,
    /// A framework for web servers, on Tokio. `http` only.
    Axum,
    /// Calls between processes through existing libraries, whose names its rows have. `rpc` and
    /// `remote` only.
    Rpc,
    /// Existing file servers, whose names its rows have. `servers` only.
    Files,
}

impl Runtime {
    pub const RIVALS: [Runtime; 3] = [Runtime::Go, Runtime::Tokio, Runtime::Std];
    /// Rivals with sources in lab/rivals.
    pub const BUILT: [Runtime; 12] = [
        Runtime::Go,
        Runtime::Tokio,
        Runtime::Std,
        Runtime::May,
        Runtime::Boost,
        Runtime::Java,
        Runtime::Interposed,
        Runtime::Floor,
        Runtime::Linux,
        Runtime::Axum,
        Runtime::Rpc,
        Runtime::Files,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Runtime::Kumihimo => "kumihimo",
            Runtime::Go => "go",
            Runtime::Tokio => "tokio",
            Runtime::Std => "std",
            Runtime::May => "may",
            Runtime::Boost => "boost",
            Runtime::Java => "java",
            Runtime::Interposed => "interposed",
            Runtime::Floor => "floor",
            Runtime::Linux => "linux",
            Runtime::Redis => "redis",
            Runtime::Axum => "axum",
            Runtime::Rpc => "rpc",
            Runtime::Files => "files",
        }
    }
}

/// A participant of a benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    pub runtime: Runtime,
    pub variant: &'static str,
    pub queue: String,
    /// `KEY=VALUE` arguments for the program.
    pub args: Vec<String>,
    /// Maximum number of runs: slow contenders get fewer than requested.
    pub at_most: usize,
}

/// Reason why a run gave no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The contender failed.
    Failed(String),
    /// The machine lacks a feature that was to be measured. Derived from an error message that
    /// begins with `refused: `.
    Refused(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Trouble::Failed(why)
    }
}

impl From<&str> for Trouble {
    fn from(why: &str) -> Self {
        Trouble::Failed(why.to_owned())
    }
}

/// Missing rows, each with its reason.
#[derive(Debug, Default)]
pub struct Missing {
    pub failures: Vec<String>,
    pub refused: Vec<String>,
}

impl Missing {
    /// Records a missing row, and prints it.
    pub fn note(&mut self, label: &str, trouble: Trouble) {
        let (word, why, list) = match trouble {
            Trouble::Failed(why) => ("FAILED", why, &mut self.failures),
            Trouble::Refused(why) => ("not measured:", why, &mut self.refused),
        };
        eprintln!("  {word} {label}: {why}");
        let line = format!("{label}: {why}");
        if !list.contains(&line) {
            list.push(line);
        }
    }
}

/// Path of each runtime's program, or the reason why there is none.
pub type Programs = BTreeMap<Runtime, Result<PathBuf, String>>;

impl Contender {
    pub fn describe(&self, bench: &str, vps: usize) -> String {
        let mut words = vec![self.runtime.name(), bench];
        words.extend(self.args.iter().map(String::as_str));
        if self.runtime == Runtime::Kumihimo {
            words.extend([self.variant, self.queue.as_str()]);
        }
        format!("{} vps={vps}", words.join(" "))
    }

    /// Default identity of the program's samples.
    pub fn identity(&self, bench: &str, vps: usize) -> Identity {
        Identity {
            bench: bench.to_owned(),
            metric: String::new(),
            runtime: self.runtime.name().to_owned(),
            variant: self.variant.to_owned(),
            queue: self.queue.clone(),
            vps,
            keys: BTreeMap::new(),
        }
    }

    /// The value of `key` among the arguments.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(key)?.strip_prefix('='))
    }

    /// The command, without its streams.
    pub fn command(&self, programs: &Programs, bench: &str, vps: usize) -> Result<Command, String> {
        let program =
            programs.get(&self.runtime).ok_or("not asked for")?.as_ref().map_err(String::clone)?;
        let mut command = Command::new(program);
        if self.runtime == Runtime::Kumihimo {
            command.args(["bench-child", "--variant", self.variant, "--queue", &self.queue]);
        }
        command.arg(bench).args(&self.args).arg("--vps").arg(vps.to_string());
        // Only if the cell requires it: otherwise the user's settings apply.
        let mut lab = Vec::new();
        match self.value("events") {
            None => {}
            // The behaviour without any setting.
            Some("default") => {
                command.env_remove("KUMI_EVENTS");
                lab.push("bpf=".to_owned());
            }
            Some(source) => _ = command.env("KUMI_EVENTS", source),
        }
        if let Some(way) = self.value("way") {
            lab.push(format!("bpf={way}"));
        }
        if let Some(batch) = self.value("batch") {
            lab.push(format!("batch={}", batching(batch)?));
        }
        if let Some(order) = self.value("ready") {
            lab.push(format!("ready={order}"));
        }
        if !lab.is_empty() {
            command.env("KUMI_LAB", kumihimo_config::lab_with(&lab.join(",")));
        }
        if let Some(arbiter) = self.value("arbiter") {
            command.env("KUMI_ARBITER", arbiter);
        }
        // A private run-time directory, which contains no other address space of the user.
        if let Some(directory) = self.value("directory") {
            command.env("KUMI_DIR", directory);
        }
        // Every traced process writes to /dev/null, which costs no disk access.
        match self.value("trace") {
            Some("on") => _ = command.env("KUMI_TRACE", TRACE),
            Some(_) => _ = command.env_remove("KUMI_TRACE"),
            None => {}
        }
        Ok(command)
    }

    /// Runs the contender to completion and parses its samples.
    pub fn run(
        &self,
        programs: &Programs,
        bench: &str,
        vps: usize,
    ) -> Result<Vec<Sample>, Trouble> {
        self.run_with(programs, bench, vps, &[])
    }

    /// As [`run`](Contender::run), with additional arguments.
    pub fn run_with(
        &self,
        programs: &Programs,
        bench: &str,
        vps: usize,
        more: &[String],
    ) -> Result<Vec<Sample>, Trouble> {
        let mut command = self.command(programs, bench, vps)?;
        command.args(more);
        let output = output_on(&cores_for(vps), &mut command)?;
        let identity = self.identity(bench, vps);
        let samples: Vec<_> =
            output.lines().map(|line| Sample::parse(line, &identity)).collect::<Result<_, _>>()?;
        if samples.is_empty() {
            return Err("the contender printed no sample".into());
        }
        Ok(samples)
    }
}

/// The value of `KUMI_LAB=batch=...` for a value of `batch`.
fn batching(batch: &str) -> Result<&'static str, String> {
    match batch {
        "adaptive" => Ok("adaptive"),
        // As many calls as fit into a batch.
        "forced" => Ok("fixed:64"),
        "plain" => Ok("off"),
        other => Err(format!("batch={other}: unknown batching")),
    }
}

/// Runs `command` on `cores` to completion. Returns its output, or a description of its failure.
pub fn output_on(cores: &[usize], command: &mut Command) -> Result<String, Trouble> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(spawn_on(cores, command)?)
}

/// Waits for the end and returns the standard output, or a description of the failure with the end
/// of the error output.
fn finish(child: Child) -> Result<String, Trouble> {
    let pid = Pid::from_child(&child);
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(child.wait_with_output()));
    let output = match receive.recv_timeout(PATIENCE) {
        Ok(output) => output.map_err(|e| e.to_string())?,
        Err(_) => {
            // The child has not been reaped, so the ID is still its own.
            kill_process(pid, Signal::KILL).map_err(|e| e.to_string())?;
            return Err(format!("killed: not done after {} s", PATIENCE.as_secs()).into());
        }
    };
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = complaint.lines().collect();
        if let Some((_, why)) = lines.iter().find_map(|line| line.split_once("refused: ")) {
            return Err(Trouble::Refused(why.to_owned()));
        }
        let said = lines.iter().take(6).copied().collect::<Vec<_>>().join(" / ");
        return Err(format!("{}: {said}", output.status).into());
    }
    String::from_utf8(output.stdout).map_err(|e| Trouble::Failed(e.to_string()))
}

/// The last `vps` cores, because interrupts tend to arrive at the first one.
pub fn cores_for(vps: usize) -> Vec<usize> {
    let mut cores = own_cores();
    cores.drain(..cores.len().saturating_sub(vps));
    cores
}

/// Starts `command` with all its kernel threads confined to `cores` from their start.
pub fn spawn_on(cores: &[usize], command: &mut Command) -> Result<Child, String> {
    let set_of = |cores: &[usize]| {
        let mut set = CpuSet::new();
        cores.iter().for_each(|&core| set.set(core));
        set
    };
    let before = sched_getaffinity(None).map_err(|e| format!("affinity: {e}"))?;
    // A child inherits the affinity of the kernel thread that creates it.
    sched_setaffinity(None, &set_of(cores)).map_err(|e| format!("affinity to {cores:?}: {e}"))?;
    let child = command.spawn();
    sched_setaffinity(None, &before).map_err(|e| format!("affinity: {e}"))?;
    child.map_err(|e| format!("{}: {e}", command.get_program().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<String, Trouble> {
        let mut command = Command::new("/bin/sh");
        output_on(&cores_for(1), command.args(["-c", script]))
    }

    #[test]
    fn failed_command_is_reported_with_its_standard_error() {
        let Err(Trouble::Failed(error)) = shell("echo out; echo cause >&2; exit 3") else {
            panic!("a failure")
        };
        assert!(error.contains("cause") && error.contains('3'), "{error}");
        let refused = shell("echo kumi: refused: no such kernel >&2; exit 1").unwrap_err();
        assert_eq!(refused, Trouble::Refused("no such kernel".to_owned()));
        assert_eq!(shell("echo out").unwrap(), "out\n");
    }

    #[test]
    fn child_starts_on_its_cores_and_the_parent_keeps_its_own() {
        let before = own_cores();
        let allowed = shell("grep Cpus_allowed_list /proc/self/status").unwrap();
        let last = before.last().unwrap().to_string();
        assert_eq!(allowed.split_whitespace().last().unwrap(), last);
        assert_eq!(own_cores(), before);
    }

    #[test]
    fn keys_of_a_cell_are_in_the_environment() {
        let programs = Programs::from([(Runtime::Kumihimo, Ok(PathBuf::from("kumi")))]);
        let with = |arg: &str| {
            let args = vec![arg.to_owned()];
            let ours = Contender {
                runtime: Runtime::Kumihimo,
                variant: "full",
                queue: "ring".into(),
                args,
                at_most: 1,
            };
            let command = ours.command(&programs, "echo", 1)?;
            let all: Vec<_> = command
                .get_envs()
                .map(|(key, value)| (key.to_owned(), value.map(ToOwned::to_owned)))
                .collect();
            Ok::<_, String>(all)
        };
        assert_eq!(
            with("batch=forced").unwrap(),
            [("KUMI_LAB".into(), Some("batch=fixed:64".into()))]
        );
        assert_eq!(with("batch=plain").unwrap(), [("KUMI_LAB".into(), Some("batch=off".into()))]);
        assert_eq!(
            with("ready=recent").unwrap(),
            [("KUMI_LAB".into(), Some("ready=recent".into()))]
        );
        assert_eq!(with("events=watch").unwrap(), [("KUMI_EVENTS".into(), Some("watch".into()))]);
        assert_eq!(with("way=switch").unwrap(), [("KUMI_LAB".into(), Some("bpf=switch".into()))]);
        assert_eq!(
            with("events=default").unwrap(),
            [("KUMI_EVENTS".into(), None), ("KUMI_LAB".into(), Some("".into()))]
        );
        assert_eq!(with("arbiter=on").unwrap(), [("KUMI_ARBITER".into(), Some("on".into()))]);
        assert_eq!(with("directory=/tmp/a").unwrap(), [("KUMI_DIR".into(), Some("/tmp/a".into()))]);
        assert!(with("batch=much").is_err());
    }

    #[test]
    fn missing_program_is_an_error() {
        let programs = Programs::from([(Runtime::Go, Err("Go is not installed".to_owned()))]);
        let contender = Contender {
            runtime: Runtime::Go,
            variant: "-",
            queue: "-".into(),
            args: vec![],
            at_most: 1,
        };
        assert_eq!(contender.run(&programs, "yield", 1).unwrap_err(), "Go is not installed".into());
    }
}
