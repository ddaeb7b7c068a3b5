//! Counts of suites and steps, and the summary line `N passed, N failed, N skipped`.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// Tests that passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Counts {
    /// Adds `other` to each count.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Returns whether no test ran or was skipped.
    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Results of completed suites and steps.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
    failures: Vec<String>,
}

#[derive(Debug)]
struct Line {
    name: String,
    kind: Kind,
    counts: Counts,
    /// Sum over the programs of a suite. Programs run concurrently, so the sum over all suites
    /// exceeds the duration of the run.
    time: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A suite, which counts tests.
    Suite,
    /// A step, which passes or fails as a whole.
    Step,
    /// A step that is impossible on this machine, with the reason.
    Skip(String),
}

impl Report {
    /// Adds a part of a suite.
    pub fn suite(&mut self, name: &str, counts: Counts, time: Duration) {
        let same = |line: &&mut Line| line.kind == Kind::Suite && line.name == name;
        if let Some(line) = self.lines.iter_mut().find(same) {
            line.counts.add(counts);
            line.time += time;
        } else {
            self.line(name, Kind::Suite, counts, time);
        }
    }

    /// Adds a description of a failure. [`Report::finish`] prints it once more, so that the end of
    /// a long output tells what failed.
    pub fn failure(&mut self, what: String) {
        self.failures.push(what);
    }

    /// Adds a step that passes or fails as a whole.
    pub fn step(&mut self, name: &str, passes: bool, time: Duration) {
        let (passed, failed) = (usize::from(passes), usize::from(!passes));
        self.line(name, Kind::Step, Counts { passed, failed, skipped: 0 }, time);
    }

    /// Runs `command` as a step, with its output on this program's streams. Blocks the kernel
    /// thread.
    pub fn run_step(&mut self, name: &str, command: &mut Command) -> Result<(), Failure> {
        println!("== {name}");
        let begun = Instant::now();
        let status = command.stdin(Stdio::null()).status().map_err(|e| format!("{name}: {e}"))?;
        self.step(name, status.success(), begun.elapsed());
        Ok(())
    }

    /// Adds a step that is impossible on this machine.
    pub fn skip(&mut self, what: &str, why: &str) {
        println!("[skip] {what}: {why}");
        let counts = Counts { skipped: 1, ..Counts::default() };
        self.line(what, Kind::Skip(why.to_owned()), counts, Duration::ZERO);
    }

    fn line(&mut self, name: &str, kind: Kind, counts: Counts, time: Duration) {
        self.lines.push(Line { name: name.to_owned(), kind, counts, time });
    }

    /// All counts. A suite without any test counts as one failure, because it checks nothing.
    fn sums(&self) -> Counts {
        let mut sums = Counts::default();
        for line in &self.lines {
            sums.add(line.counts);
            sums.failed += usize::from(line.counts.is_empty());
        }
        sums
    }

    /// Prints a line for each suite and step, then the failures and the summary line. The exit code
    /// is 0 if something passed and nothing failed.
    pub fn finish(&self) -> ExitCode {
        for line in &self.lines {
            let Counts { passed, failed, skipped } = line.counts;
            let (name, seconds) = (&line.name, line.time.as_secs_f64());
            match &line.kind {
                Kind::Suite => {
                    let note = if line.counts.is_empty() { " (no test ran)" } else { "" };
                    println!(
                        "suite {name}: {passed} passed, {failed} failed, {skipped} skipped, \
                         {seconds:.1} s{note}"
                    );
                }
                Kind::Step => {
                    let outcome = if failed == 0 { "passed" } else { "FAILED" };
                    println!("step {name}: {outcome}, {seconds:.1} s");
                }
                Kind::Skip(why) => println!("skipped {name}: {why}"),
            }
        }
        for failure in &self.failures {
            println!("FAILED {failure}");
        }
        let sums = self.sums();
        println!("{} passed, {} failed, {} skipped", sums.passed, sums.failed, sums.skipped);
        if sums.failed == 0 && sums.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Counts = Counts { passed: 1, failed: 0, skipped: 0 };

    #[test]
    fn parts_of_a_suite_add_up() {
        let mut report = Report::default();
        report.suite("a", ONE, Duration::ZERO);
        report.suite("a", Counts { passed: 2, failed: 1, skipped: 1 }, Duration::ZERO);
        report.step("b", true, Duration::ZERO);
        report.skip("c", "no such device");
        assert_eq!(report.lines.len(), 3);
        assert_eq!(report.sums(), Counts { passed: 4, failed: 1, skipped: 2 });
        assert_eq!(report.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn suite_without_a_test_fails() {
        let mut report = Report::default();
        report.suite("a", ONE, Duration::ZERO);
        assert_eq!(report.finish(), ExitCode::SUCCESS);
        report.suite("b", Counts::default(), Duration::ZERO);
        assert_eq!(report.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn run_in_which_nothing_passed_fails() {
        let mut report = Report::default();
        report.skip("a", "no such device");
        assert_eq!(report.finish(), ExitCode::FAILURE);
    }
}
