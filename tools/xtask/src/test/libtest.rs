//! Parses the output of a test program: libtest's events, one JSON object a line, among other
//! lines.
//!
//! On the stable toolchain, this format requires `-Z unstable-options` and RUSTC_BOOTSTRAP. The
//! default format does not report the tests that are currently running, which a hang report needs.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

/// Arguments for libtest to print events.
pub const ARGUMENTS: [&str; 4] = ["-Z", "unstable-options", "--format=json", "--report-time"];

/// State of one run of a test program, updated line by line.
#[derive(Debug, Default)]
pub struct Run {
    /// Tests that passed and did not skip themselves.
    pub passed: BTreeSet<String>,
    /// Tests that failed, with their output.
    pub failed: Vec<(String, String)>,
    /// Tests that libtest ignored, and lines `[skip] NAME: WHY` (`kumihimo_tests::skip`). A test
    /// may print the same line several times.
    pub skipped: BTreeSet<String>,
    /// Tests that are currently running.
    pub running: BTreeSet<String>,
    /// True if libtest has printed its totals. Otherwise the program has died.
    pub ended: bool,
    /// Duration in seconds of each test that has ended.
    pub seconds: Vec<(f64, String)>,
    /// Number of tests that skipped themselves, which libtest counts as passed.
    self_skipped: usize,
    /// Last lines other than libtest's events.
    stray: VecDeque<String>,
}

/// Maximum number of stray lines.
const STRAY: usize = 40;

impl Run {
    /// Processes a line. Returns true if it reports the end of a test.
    pub fn line(&mut self, line: &str) -> bool {
        if let Some(what) = line.strip_prefix("[skip] ") {
            self.self_skipped += usize::from(self.skipped.insert(what.to_owned()));
            return false;
        }
        // A test program's own output may precede an event on the same line.
        let Some(event) = line.find("{ \"type\"").or_else(|| line.find("{\"type\"")) else {
            self.note_stray(line);
            return false;
        };
        let Ok(event) = serde_json::from_str::<Value>(&line[event..]) else { return false };
        let name = || event["name"].as_str().unwrap_or("?").to_owned();
        match (event["type"].as_str(), event["event"].as_str()) {
            (Some("test"), Some("started")) => {
                self.running.insert(name());
                false
            }
            (Some("test"), Some(how @ ("ok" | "failed" | "ignored"))) => {
                let name = name();
                self.running.remove(&name);
                self.seconds.push((event["exec_time"].as_f64().unwrap_or(0.0), name.clone()));
                match how {
                    "ok" => {
                        self.passed.insert(name);
                    }
                    "ignored" => {
                        self.skipped.insert(format!("{name}: ignored"));
                    }
                    _ => {
                        let said = event["stdout"]
                            .as_str()
                            .map_or_else(|| self.said_astray(), str::to_owned);
                        self.failed.push((name, said));
                    }
                }
                true
            }
            (Some("suite"), Some("ok" | "failed")) => {
                self.ended = true;
                false
            }
            _ => false,
        }
    }

    fn note_stray(&mut self, line: &str) {
        if self.stray.len() == STRAY {
            self.stray.pop_front();
        }
        self.stray.push_back(line.to_owned());
    }

    /// Stray output for a failed test whose output libtest did not capture, because its
    /// microprocesses panicked on other kernel threads: from the last panic on, or all stray lines.
    fn said_astray(&self) -> String {
        let from = self.stray.iter().rposition(|line| line.contains("panicked at")).unwrap_or(0);
        let lines: Vec<_> = self.stray.iter().skip(from).map(String::as_str).collect();
        if lines.iter().all(|line| line.trim().is_empty()) {
            return "(it printed nothing)".to_owned();
        }
        format!("(printed outside of a test:)\n{}", lines.join("\n"))
    }

    /// Number of tests that passed, without those that skipped themselves.
    pub fn passes(&self) -> usize {
        self.passed.len().saturating_sub(self.self_skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(lines: &[&str]) -> Run {
        let mut run = Run::default();
        for line in lines {
            run.line(line);
        }
        run
    }

    #[test]
    fn events_are_counted() {
        let run = fed(&[
            r#"{ "type": "suite", "event": "started", "test_count": 3 }"#,
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            r#"{ "type": "test", "event": "started", "name": "b" }"#,
            r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 0.5 }"#,
            r#"words of its own{ "type": "test", "name": "b", "event": "failed", "stdout": "no\n" }"#,
            r#"{ "type": "test", "event": "started", "name": "c" }"#,
            r#"{ "type": "test", "name": "d", "event": "ignored" }"#,
        ]);
        assert_eq!(run.passes(), 1);
        assert_eq!(run.failed, [("b".to_owned(), "no\n".to_owned())]);
        assert_eq!(run.skipped.iter().collect::<Vec<_>>(), ["d: ignored"]);
        assert_eq!(run.running.iter().collect::<Vec<_>>(), ["c"]);
        assert!(!run.ended);
    }

    #[test]
    fn test_that_skips_itself_has_not_passed() {
        let run = fed(&[
            "[skip] a: no such device",
            "[skip] a: no such device",
            r#"{ "type": "test", "name": "a", "event": "ok" }"#,
            r#"{ "type": "suite", "event": "ok", "passed": 1 }"#,
        ]);
        assert_eq!((run.passes(), run.skipped.len(), run.ended), (0, 1, true));
    }

    #[test]
    fn only_the_end_of_a_test_is_reported_as_one() {
        let mut run = Run::default();
        assert!(!run.line(r#"{ "type": "test", "event": "started", "name": "a" }"#));
        assert!(!run.line("anything"));
        assert!(run.line(r#"{ "type": "test", "name": "a", "event": "ok" }"#));
    }

    #[test]
    fn uncaptured_panic_is_shown_with_the_failed_test() {
        let run = fed(&[
            "thread 'older' panicked at a.rs:1:1:",
            "thread '<unnamed>' panicked at b.rs:2:2:",
            "left is not right",
            r#"{ "type": "test", "name": "one", "event": "failed", "exec_time": 0.1 }"#,
        ]);
        let said = &run.failed[0].1;
        assert!(
            said.ends_with("thread '<unnamed>' panicked at b.rs:2:2:\nleft is not right"),
            "{said}"
        );
        let run = fed(&["", r#"{ "type": "test", "name": "one", "event": "failed" }"#]);
        assert_eq!(run.failed[0].1, "(it printed nothing)");
    }
}
