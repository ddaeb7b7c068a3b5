//! Suites that cargo builds and runs: documentation tests, models, sanitizer runs.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Failure;
use crate::report::{Counts, Report};
use crate::workspace;

/// Runs `command` as the suite `name`, with its output in a file. A failing command's output is
/// printed. Blocks the kernel thread.
pub fn suite(report: &mut Report, name: &str, command: &mut Command) -> Result<(), Failure> {
    println!("== {name}");
    let begun = Instant::now();
    let file = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "-");
    let folder = workspace::target().join("suites");
    std::fs::create_dir_all(&folder)?;
    let log = folder.join(file + ".log");
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    std::fs::write(&log, &text)?;
    let mut counts = counts(&text);
    if !output.status.success() {
        counts.failed = counts.failed.max(1);
    }
    if counts.failed > 0 {
        println!("{text}\n{name}: {}; full output: {}", output.status, log.display());
        report.failure(format!("{name}: {}: {}", output.status, failed(&text).join(", ")));
    }
    report.suite(name, counts, begun.elapsed());
    Ok(())
}

/// Names of the tests that libtest calls failed.
fn failed(text: &str) -> Vec<&str> {
    let tests = text.lines().filter_map(|line| line.strip_prefix("test "));
    tests.filter_map(|line| line.strip_suffix(" ... FAILED")).collect()
}

/// Sums of libtest's summary lines, minus the tests that skipped themselves
/// (`kumihimo_tests::skip`).
pub fn counts(text: &str) -> Counts {
    let mut sums = Counts::default();
    for line in text.lines() {
        if line.starts_with("[skip] ") {
            sums.skipped += 1;
            sums.passed = sums.passed.saturating_sub(1);
        }
        let closing = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
        let Some((_, counts)) = closing else { continue };
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let number: usize = number.parse().unwrap_or(0);
            match what {
                "passed" => sums.passed += number,
                "failed" => sums.failed += number,
                "ignored" => sums.skipped += number,
                _ => {}
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named() {
        let text = "test a::b ... ok\ntest src/c.rs - d (line 3) ... FAILED\n";
        assert_eq!(failed(text), ["src/c.rs - d (line 3)"]);
    }

    #[test]
    fn summary_lines_add_up() {
        let text = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    [skip] a: no such device\n\
                    test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts(text), Counts { passed: 4, failed: 1, skipped: 2 });
    }
}
