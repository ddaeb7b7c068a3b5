//! The book's page about real programs, and the results that it shows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::table::{Program, TABLE, Threads};
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
    pub fn new(_program: &Program, version: String) -> Record {
        Record {
            version,
            machine: machine(),
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
        let times: usize = self.runs.iter().map(|(_, times, _)| times).sum();
        let why = self.failures.first().map_or_else(String::new, |why| format!(": {why}"));
        match (failed, times) {
            (0, 1) => "as plain, 1 run".to_owned(),
            (0, _) => format!("as plain, {times} runs"),
            (_, _) => format!("{failed} of {times} runs differ{why}"),
        }
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
on kernel threads. `make programs` made this page; `make check` runs each program once. Programs
that are not installed are skipped. `tools/xtask/src/programs` has the table and the scripts.

- *Result*: a run passes if output and exit code are those of the plain run, and at least 90 % of
  the threads were microprocesses (`kumi run --strict --report`). Runs are those under the default
  event source and under each other one.
- *Microprocesses / threads*: of the run with the smallest share. Programs without threads have
  none.
- *Kernel threads*: the greatest number in samples of `/proc/PID/task`, 50 ms apart, plainly and
  under `kumi run`, over all processes of the program. The runtime's own threads count.

";

fn page(records: &Records) -> String {
    let mut text = HEAD.to_owned();
    let mut machines: Vec<&str> = records.values().map(|r| r.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    let _ = writeln!(text, "Machine: {}.\n", machines.join("; "));
    text.push_str(
        "| program | version | what is compared | result | microprocesses / threads | kernel \
         threads: plain, `kumi run` |\n|---|---|---|---|---|---|\n",
    );
    for program in TABLE {
        let (name, checked) = (program.name, program.checked);
        let Some(record) = records.get(name) else {
            let _ = writeln!(text, "| {name} | | {checked} | not run here | | |");
            continue;
        };
        let (micro, all) = record.counts.unwrap_or_default();
        let counts = match program.threads {
            Threads::None => "no threads".to_owned(),
            Threads::Some => format!("{micro} / {all}"),
        };
        let (version, result) = (&record.version, record.result().replace('|', "\\|"));
        let result = match program.known {
            Some(known) => format!("{result}. Known: {known}"),
            None => result,
        };
        let (plain, kumi) = (record.plain_kernel_threads, record.kernel_threads);
        let _ = writeln!(
            text,
            "| {name} | {version} | {checked} | {result} | {counts} | {plain}, {kumi} |"
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
    }

    #[test]
    fn result_names_the_failed_runs() {
        let mut record = Record::new(&TABLE[0], "1".to_owned());
        record.runs.push(("default".to_owned(), 20, 0));
        assert_eq!(record.result(), "as plain, 20 runs");
        record.runs.push(("perf".to_owned(), 3, 1));
        record.failures.push("hangs".to_owned());
        assert_eq!(record.result(), "1 of 23 runs differ: hangs");
    }
}
