//! The book's page about real programs, and the results that it shows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::table::{TABLE, Threads};
use super::trial::Ended;
use crate::{Failure, workspace};

const RESULTS: &str = "tools/xtask/src/programs/results.json";
const PAGE: &str = "docs/src/reference/programs.md";

/// Results of a program.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Record {
    version: String,
    /// Kernel and cores.
    machine: String,
    /// Profile and commit. Empty in results that are older than this field.
    #[serde(default)]
    build: String,
    /// For each event source: its name, runs, failed runs.
    pub runs: Vec<(String, usize, usize)>,
    /// What failed.
    pub failures: Vec<String>,
    /// The run with the smallest share of microprocesses: these, and all threads.
    counts: Option<(u64, u64)>,
    /// The greatest numbers of kernel threads.
    pub plain_kernel_threads: usize,
    kernel_threads: usize,
}

pub type Records = BTreeMap<String, Record>;

impl Record {
    pub fn new(version: String, build: String) -> Record {
        Record {
            version,
            machine: machine(),
            build,
            runs: Vec::new(),
            failures: Vec::new(),
            counts: None,
            plain_kernel_threads: 0,
            kernel_threads: 0,
        }
    }

    /// Adds a run under `kumi run`.
    pub fn add(&mut self, ended: &Ended) {
        self.kernel_threads = self.kernel_threads.max(ended.kernel_threads);
        let share = |(micro, all): (u64, u64)| micro * 1000 / all.max(1);
        let is_less = |counts| share(ended.counts) < share(counts);
        if self.counts.is_none_or(is_less) {
            self.counts = Some(ended.counts);
        }
    }

    fn result(&self) -> String {
        let failed: usize = self.runs.iter().map(|(_, _, failed)| failed).sum();
        if self.runs.is_empty() {
            return self.failures.join("; ");
        }
        if failed == 0 {
            return "as plain".to_owned();
        }
        let times: usize = self.runs.iter().map(|(_, times, _)| times).sum();
        let of = |(name, times, failed): &(String, usize, usize)| {
            (*failed > 0).then(|| format!("{failed} of {times} with {name}"))
        };
        let parts: Vec<String> = self.runs.iter().filter_map(of).collect();
        let why = self.failures.first().map_or_else(String::new, |why| format!(": {why}"));
        format!("{failed} of {times} runs differ ({}){why}", parts.join(", "))
    }

    /// Number of runs with each event source.
    fn times(&self) -> String {
        let parts: Vec<_> = self.runs.iter().map(|(name, n, _)| format!("{name} {n}")).collect();
        parts.join(", ")
    }
}

/// Kernel and number of cores.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("Linux {}, {cores} cores", kernel.trim())
}

/// The results so far.
pub fn read() -> Result<Records, Failure> {
    match fs::read_to_string(workspace::root().join(RESULTS)) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Records::new()),
        Err(error) => Err(format!("{RESULTS}: {error}").into()),
    }
}

/// Writes the results and the page.
pub fn write(records: &Records) -> Result<(), Failure> {
    let put = |name: &str, text: String| -> Result<(), Failure> {
        let path: PathBuf = workspace::root().join(name);
        fs::create_dir_all(path.parent().expect("a folder"))?;
        fs::write(&path, text).map_err(|e| format!("{name}: {e}").into())
    };
    put(RESULTS, serde_json::to_string_pretty(records)? + "\n")?;
    put(PAGE, page(records))
}

const HEAD: &str = "\
# Programs

Real programs under [`kumi run`](../guides/unmodified-programs.md), compared with the same programs
on kernel threads. `cargo xtask programs --page NAME...` runs programs and replaces their rows;
`make programs` replaces all rows. So rows may be of different builds, and of different numbers of
runs. `make check` runs each program once and changes no row. Programs that are not installed are
skipped. `tools/xtask/src/programs` has the table, the scripts and the results.

- *Build*: profile and commit. Rows without them are older than this column.
- *Runs*: how often the program ran under `kumi run` with each event source. The default one is the
  best that the machine has. A source that is not named did not run.
- *Result*: a run passes if output and exit code are those of the plain run, and at least 90 % of
  the threads were microprocesses (`kumi run --strict --report`).
- *Microprocesses / threads*: of the run with the smallest share. Programs without threads have
  none.
- *Kernel threads*: the greatest number in samples of `/proc/PID/task`, 50 ms apart, over all
  processes of the program: in the plain run, and in all runs under `kumi run`. The runtime's own
  threads count.

";

fn page(records: &Records) -> String {
    let mut text = HEAD.to_owned();
    let mut machines: Vec<&str> = records.values().map(|r| r.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    let _ = writeln!(text, "Machine: {}.\n", machines.join("; "));
    text.push_str(
        "| program | version | build | what is compared | runs | result | microprocesses / threads \
         | kernel threads: plain, `kumi run` |\n|---|---|---|---|---|---|---|---|\n",
    );
    for program in TABLE {
        let (name, checked) = (program.name, program.checked);
        let Some(record) = records.get(name) else {
            let _ = writeln!(text, "| {name} | | | {checked} | none | not run here | | |");
            continue;
        };
        let (micro, all) = record.counts.unwrap_or_default();
        let counts = match program.threads {
            Threads::None => "no threads".to_owned(),
            Threads::Some => format!("{micro} / {all}"),
        };
        let (version, result) = (&record.version, record.result().replace('|', "\\|"));
        let result = match program.known {
            Some(known) => format!("{result}. Known: {}", known.why),
            None => result,
        };
        let build = if record.build.is_empty() { "not recorded" } else { &record.build };
        let times = record.times();
        let (plain, kumi) = (record.plain_kernel_threads, record.kernel_threads);
        let _ = writeln!(
            text,
            "| {name} | {version} | {build} | {checked} | {times} | {result} | {counts} | {plain}, \
             {kumi} |"
        );
    }
    text.push_str(
        "\nOutput that is filtered before the comparison:\n\n| program | filter |\n|---|---|\n",
    );
    for program in TABLE.iter().filter(|program| !program.filter.is_empty()) {
        let _ = writeln!(text, "| {} | `{}` |", program.name, program.filter.replace('|', "\\|"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_page_is_that_of_the_results() {
        let committed = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        assert!(committed == page(&read().unwrap()), "run `make programs`");
    }

    #[test]
    fn every_program_of_the_table_has_results() {
        let records = read().unwrap();
        let missing: Vec<_> =
            TABLE.iter().filter(|program| !records.contains_key(program.name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let names = || TABLE.iter().map(|program| program.name);
        let stale: Vec<_> =
            records.keys().filter(|name| !names().any(|own| own == *name)).collect();
        assert!(stale.is_empty(), "no programs of the table: {stale:?}");
    }

    #[test]
    fn result_names_the_failed_runs() {
        let mut record = Record::new("1".to_owned(), "debug, 1234".to_owned());
        record.runs.push(("default".to_owned(), 20, 0));
        assert_eq!(record.result(), "as plain");
        record.runs.push(("perf".to_owned(), 3, 1));
        record.failures.push("hangs".to_owned());
        assert_eq!(record.result(), "1 of 23 runs differ (1 of 3 with perf): hangs");
        assert_eq!(record.times(), "default 20, perf 3");
    }
}
