//! The programs behind the rows: each starts a fresh process of one build, measures once and ends
//! it. All are driven through command lines that `kumi` has had since commit 60d764c, and that
//! `kumi-lab` took over.

mod echo;
mod files;
mod kv;
mod micro;
mod rpc;
mod stall;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::child::Trouble;
use super::rows::Program;
use super::verdict::Better;

/// Where files in memory go, if the machine has it.
const MEMORY: &str = "/dev/shm";
/// Event sources, best first.
const SOURCES: [&str; 3] = ["bpf", "perf", "watch"];

/// What one measurement came to: values by metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// In the unit of the metric's row.
    pub metrics: BTreeMap<String, f64>,
    /// User-mode instructions for each operation, where the machine counts them.
    pub instructions: Option<f64>,
}

impl Sample {
    /// Notes a value of a metric, unless a better one was noted before. Other work on the machine
    /// makes figures worse and never better, so the best of several slices varies least.
    fn note(&mut self, metric: &str, better: Better, value: f64) {
        let best = self.metrics.entry(metric.to_owned()).or_insert(value);
        *best = match better {
            Better::Lower => best.min(value),
            Better::Higher => best.max(value),
        };
    }

    fn counted(self, instructions: Option<u64>, operations: f64) -> Sample {
        Sample { instructions: instructions.map(|count| count as f64 / operations), ..self }
    }
}

/// A directory of this run, removed when it is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

/// How all of them begin, before the ID of their process.
const SCRATCH: &str = "kumi-bench-check-";

/// Removes the directories of runs that were killed.
pub fn remove_stale() {
    for parent in [PathBuf::from(MEMORY), std::env::temp_dir()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
            let Some((id, _)) = rest.and_then(|rest| rest.split_once('-')) else { continue };
            if id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists() {
                // Another user's stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Scratch {
    /// A new one below `parent`, for the user only.
    pub fn below(parent: &Path) -> Result<Scratch, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{SCRATCH}{}-{number}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| format!("{} could not be created: {e}", path.display()))?;
        Ok(Scratch(path))
    }

    /// A new one in memory where there is such a file system, else among the temporary files.
    pub fn in_memory() -> Result<Scratch, String> {
        let memory = Path::new(MEMORY);
        let other = std::env::temp_dir();
        Scratch::below(if memory.is_dir() { memory } else { &other })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("bench-check: {} stays: {e}", self.0.display());
        }
    }
}

/// What both builds are measured with. Found once, with BASE, so that it is the same for both.
#[derive(Debug)]
pub struct Setting {
    /// BASE's program, whose loads drive both builds.
    load: PathBuf,
    /// The event source of `events` and `stall`; why there is none.
    source: Result<String, Trouble>,
    /// Requests a second of `stall`, once it was needed.
    stall_rate: Option<f64>,
    /// The image that `files` mounts, once it was needed.
    store: Option<files::Store>,
}

impl Setting {
    /// For loads of this program, which is BASE's.
    pub fn new(load: &Path) -> Setting {
        Setting {
            load: load.to_owned(),
            source: micro::source(load),
            stall_rate: None,
            store: None,
        }
    }

    /// For reports.
    pub fn describe(&self) -> String {
        let source = self.source.as_ref().map_or("none", String::as_str);
        let rate = self.stall_rate.map(|rate| format!("; stall: {rate:.0} requests/s"));
        format!("event source {source}{}", rate.unwrap_or_default())
    }

    fn source(&self) -> Result<&str, Trouble> {
        self.source.as_deref().map_err(Trouble::clone)
    }
}

/// Measures `program` once with the build `kumi`.
pub fn measure(program: Program, kumi: &Path, setting: &mut Setting) -> Result<Sample, Trouble> {
    match program {
        Program::Micro(micro) => micro::measure(micro, kumi, setting),
        Program::Echo => echo::measure(kumi, setting),
        Program::Rpc { callers } => rpc::measure(callers, kumi),
        Program::Stall => stall::measure(kumi, setting),
        Program::Files => files::measure(kumi, setting),
        Program::Kv => kv::measure(kumi),
    }
}

/// `kumi-lab bench-child BENCH ARGS`, in a run-time directory of its own.
fn child(kumi: &Path, directory: &Scratch, bench: &str, args: &[&str], vps: usize) -> Command {
    let mut command = Command::new(kumi);
    command.args(["bench-child", "--variant", "full", "--queue", "ring", bench]).args(args);
    command.args(["--vps", &vps.to_string()]).env("KUMI_DIR", directory.path());
    command
}

/// The numbers of a line parted by blanks, if there are exactly `N` and all are finite.
fn numbers<const N: usize>(line: &str) -> Option<[f64; N]> {
    let all: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    let all: [f64; N] = all?.try_into().ok()?;
    all.iter().all(|number| number.is_finite()).then_some(all)
}
