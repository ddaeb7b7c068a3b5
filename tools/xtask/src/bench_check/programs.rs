//! The programs behind the rows. Each starts a fresh process of one build, measures once and ends
//! the process. All use command lines that `kumi` supports since commit 60d764c and `kumi-lab` has
//! taken over.

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

/// Preferred directory for files in memory.
const MEMORY: &str = "/dev/shm";
/// Event sources, best first.
const SOURCES: [&str; 3] = ["bpf", "perf", "watch"];

/// Result of one measurement: values by metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Values in the unit of the metric's row.
    pub metrics: BTreeMap<String, f64>,
    /// User-mode instructions for each operation, if the machine counts them.
    pub instructions: Option<f64>,
}

impl Sample {
    /// Records a value of a metric, unless a better one is recorded. Other work on the machine
    /// makes values worse, never better, so the best of several slices varies least.
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

/// A temporary directory of this run, removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

/// Prefix of the names of temporary directories. The process ID follows.
const SCRATCH: &str = "kumi-bench-check-";

/// Removes temporary directories of runs that were killed.
pub fn remove_stale() {
    for parent in [PathBuf::from(MEMORY), std::env::temp_dir()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
            let Some((id, _)) = rest.and_then(|rest| rest.split_once('-')) else { continue };
            if id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists() {
                // Directories of other users cannot be removed.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Scratch {
    /// Creates a directory below `parent` that only the user can access.
    pub fn below(parent: &Path) -> Result<Scratch, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{SCRATCH}{}-{number}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| format!("cannot create {}: {e}", path.display()))?;
        Ok(Scratch(path))
    }

    /// Creates a directory in memory if there is such a file system, otherwise among the temporary
    /// files.
    pub fn in_memory() -> Result<Scratch, String> {
        let memory = Path::new(MEMORY);
        let other = std::env::temp_dir();
        Scratch::below(if memory.is_dir() { memory } else { &other })
    }

    /// Path of the directory.
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

/// Conditions of all measurements, determined once with BASE, so that they are equal for both
/// builds.
#[derive(Debug)]
pub struct Setting {
    /// BASE's program, which generates the load for both builds.
    load: PathBuf,
    /// Event source of `events` and `stall`, or why there is none.
    source: Result<String, Trouble>,
    /// Request rate of `stall`, determined on first use.
    stall_rate: Option<f64>,
    /// The image that `files` mounts, created on first use.
    store: Option<files::Store>,
}

impl Setting {
    /// Uses `load`, which is BASE's program, to generate loads.
    pub fn new(load: &Path) -> Setting {
        Setting {
            load: load.to_owned(),
            source: micro::source(load),
            stall_rate: None,
            store: None,
        }
    }

    /// Description for reports.
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

/// The command `kumi-lab bench-child BENCH ARGS` with a run-time directory of its own.
fn child(kumi: &Path, directory: &Scratch, bench: &str, args: &[&str], vps: usize) -> Command {
    let mut command = Command::new(kumi);
    command.args(["bench-child", "--variant", "full", "--queue", "ring", bench]).args(args);
    command.args(["--vps", &vps.to_string()]).env("KUMI_DIR", directory.path());
    command
}

/// Parses a line of exactly `N` finite numbers, separated by blanks.
fn numbers<const N: usize>(line: &str) -> Option<[f64; N]> {
    let all: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    let all: [f64; N] = all?.try_into().ok()?;
    all.iter().all(|number| number.is_finite()).then_some(all)
}
