//! `cargo xtask book-figures`: writes the pages of the book about benchmarks from the reports in
//! `lab/results`.
//!
//! A page has the rows of a report word for word, so that `tests/tests/book.rs` can compare them
//! without this code. A test below fails when a committed page differs from the reports.

mod chart;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Failure;
use crate::workspace::root;

/// Where the pages are.
const PAGES: &str = "docs/src/benchmarks";

/// A page has all medians of a benchmark up to this number of rows. Beyond it, only those of the
/// metrics that a figure uses.
const ALL_ROWS: usize = 150;

/// One benchmark in one report.
struct Run {
    /// The folder below `lab/results`.
    folder: String,
    /// The command, without the options that name files of one machine.
    command: String,
    /// Machine, kernel, C library.
    machine: String,
    /// Lines of the table of figures.
    figures: Vec<String>,
    /// Head and lines of the table of medians.
    medians: Vec<String>,
    /// Charts of the report.
    charts: Vec<String>,
}

/// Writes the pages, and removes those of benchmarks that are gone.
pub fn run() -> Result<ExitCode, Failure> {
    let folder = root().join(PAGES);
    let files = files(&root())?;
    for old in generated(&folder)? {
        if !files.contains_key(&old) {
            fs::remove_file(folder.join(&old)).map_err(|e| format!("{old}: {e}"))?;
        }
    }
    fs::create_dir_all(folder.join("plots")).map_err(|e| format!("{PAGES}/plots: {e}"))?;
    for (name, text) in &files {
        fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"))?;
    }
    println!("{} files in {PAGES}", files.len());
    Ok(ExitCode::SUCCESS)
}

/// Names of the files below `folder` that this command writes: all but the pages written by hand.
fn generated(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for below in ["", "plots"] {
        let Ok(entries) = fs::read_dir(folder.join(below)) else { continue };
        for entry in entries.flatten() {
            let name = Path::new(below).join(entry.file_name()).to_string_lossy().into_owned();
            let is_page = name.ends_with(".md") || name.ends_with(".svg");
            if is_page && !text::BY_HAND.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// Name and contents of each generated file, from the reports below `root`.
fn files(root: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let results = root.join("lab/results");
    let benches = benches(&results)?;
    let mut files = BTreeMap::new();
    files.insert("index.md".to_owned(), text::index(&benches));
    for (bench, runs) in &benches {
        let mut charts = Vec::new();
        for run in runs {
            let mut names = Vec::new();
            if let Some(svg) = chart::draw(run) {
                names.push(format!("{bench}-{}.svg", run.folder));
                files.insert(format!("plots/{bench}-{}.svg", run.folder), svg);
            }
            for name in &run.charts {
                let path = results.join(&run.folder).join(name);
                let svg = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
                names.push(name.clone());
                files.insert(format!("plots/{name}"), svg);
            }
            charts.push(names);
        }
        files.insert(format!("{bench}.md"), text::page(bench, runs, &charts));
    }
    Ok(files)
}

/// The runs of each benchmark. A report of one benchmark replaces that of all benchmarks.
fn benches(results: &Path) -> Result<BTreeMap<String, Vec<Run>>, Failure> {
    let entries = fs::read_dir(results).map_err(|e| format!("{}: {e}", results.display()))?;
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.retain(|folder| folder.join("report.md").exists());
    folders.sort();
    let mut benches: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    for folder in folders {
        let report = fs::read_to_string(folder.join("report.md"))
            .map_err(|e| format!("{}: {e}", folder.display()))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (bench, mut run) in parse(&name, &report)? {
            run.charts.retain(|chart| folder.join(chart).exists());
            let runs = benches.entry(bench).or_default();
            if name == "all" {
                runs.push(run);
            } else {
                runs.retain(|other| other.folder != "all");
                runs.push(run);
            }
        }
    }
    Ok(benches)
}

/// The benchmarks of a report, each with its tables.
fn parse(folder: &str, report: &str) -> Result<Vec<(String, Run)>, Failure> {
    let bad = |what: &str| format!("lab/results/{folder}/report.md: {what}");
    let mut sections = report.split("\n## ");
    let head = sections.next().unwrap_or_default();
    let made = head.split("Made by `").nth(1).and_then(|rest| rest.split('`').next());
    let command = command(made.ok_or_else(|| bad("no command"))?);
    let machine = machine(head);
    let mut benches = Vec::new();
    for section in sections {
        let bench = section.lines().next().unwrap_or_default().trim().to_owned();
        let mut run = Run {
            folder: folder.to_owned(),
            command: command.clone(),
            machine: machine.clone(),
            figures: Vec::new(),
            medians: Vec::new(),
            charts: Vec::new(),
        };
        let mut table = None;
        for line in section.lines() {
            match line {
                _ if line.starts_with("| figure |") => table = Some(true),
                _ if line.starts_with("| metric |") => table = Some(false),
                _ if line.starts_with("| ---") => {}
                _ if line.starts_with("| ") => match table {
                    Some(true) => run.figures.push(line.to_owned()),
                    Some(false) => run.medians.push(line.to_owned()),
                    // A summary that only one benchmark has.
                    None => {}
                },
                _ => {
                    table = None;
                    if let Some(rest) = line.strip_prefix("![") {
                        run.charts.extend(rest.split(']').next().map(str::to_owned));
                    }
                }
            }
        }
        benches.push((bench, run));
    }
    Ok(benches)
}

/// A command without the options that name files.
fn command(made: &str) -> String {
    let mut words = Vec::new();
    let mut is_file = false;
    for word in made.split_whitespace() {
        if is_file {
            is_file = false;
        } else if ["--json", "--report", "--write-times"].contains(&word) {
            is_file = true;
        } else {
            words.push(word);
        }
    }
    words.join(" ")
}

/// The table of the machine as one line.
fn machine(head: &str) -> String {
    let kept = ["cpu", "cores", "kernel", "libc", "rustc", "go", "commit"];
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (name, value) = (cells.next()?, cells.next()?);
        kept.contains(&name).then(|| match name {
            "cores" => format!("{value} cores"),
            "commit" => format!("commit {value}"),
            _ => value.to_owned(),
        })
    };
    head.lines().filter_map(row).collect::<Vec<_>>().join("; ")
}

/// Cells of a row of a table.
fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix('|').unwrap_or(line);
    inner.strip_suffix('|').unwrap_or(inner).split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_pages_are_those_of_the_reports() {
        let folder = root().join(PAGES);
        let files = files(&root()).unwrap();
        let there = generated(&folder).unwrap();
        let extra: Vec<_> = there.iter().filter(|name| !files.contains_key(*name)).collect();
        assert!(extra.is_empty(), "pages of no report: {extra:?}");
        let differs = |(name, text): &(&String, &String)| {
            fs::read_to_string(folder.join(name)).ok().as_ref() != Some(*text)
        };
        let stale: Vec<_> = files.iter().filter(differs).map(|(name, _)| name).collect();
        assert!(stale.is_empty(), "run `cargo xtask book-figures`: {stale:?}");
    }

    #[test]
    fn a_command_loses_its_files() {
        let made = "kumi bench rpc --rivals --runs 3 --json /a/b.jsonl --report /a/b";
        assert_eq!(command(made), "kumi bench rpc --rivals --runs 3");
    }

    #[test]
    fn a_report_is_read_by_benchmark() {
        let report = "# M\n\nMade by `kumi bench all`. x\n\n| machine |  |\n| --- | --- |\n\
                      | cpu | A |\n| cores | 2 |\n| commit | 0a1b2c3d |\n\n## a\n\n\
                      | figure | vps | to reach | measured |  |\n| --- | --- | --- | --- | --- |\n\
                      | x / go | 1 | <= 2.00 | 1.84 | reached |\n\n\
                      | metric | runtime | median |\n| --- | --- | --- |\n| x | go | 1 |\n\n\
                      ![a.svg](a.svg)\n\n## b\n";
        let benches = parse("all", report).unwrap();
        assert_eq!(benches.len(), 2);
        let (name, run) = &benches[0];
        assert_eq!((name.as_str(), run.machine.as_str()), ("a", "A; 2 cores; commit 0a1b2c3d"));
        assert_eq!(run.figures, ["| x / go | 1 | <= 2.00 | 1.84 | reached |"]);
        assert_eq!(run.medians, ["| x | go | 1 |"]);
        assert_eq!(run.charts, ["a.svg"]);
    }
}
