//! `cargo xtask prose`: checks the language of the Rust sources (`scripts/prose` calls it).
//!
//! Rules:
//! - `words`: no pronoun that hides the subject (see `rules.rs`) in comments, string literals,
//!   and names of tests.
//! - `width`: no comment line over 100 columns.
//! - `summary`: every public item of a library crate starts its documentation with a summary line.
//!
//! `scripts/prose.budget` holds the number of findings that remain for each rule and folder. A
//! count above its budget fails. So does one below it, until the budget is lowered: it never rises
//! again.

mod rules;
mod wrap;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

use crate::report::Report;
use crate::{Failure, workspace};
use rules::{Finding, Rule};

const BUDGET: &str = "scripts/prose.budget";

/// Findings of a rule below a folder.
type Counts = BTreeMap<(Rule, String), usize>;

#[derive(clap::Args)]
pub struct Args {
    /// Print all findings below these paths, without a comparison with the budget
    paths: Vec<String>,
    /// Lower the budget to the current counts
    #[arg(long)]
    lower: bool,
    /// Wrap comment paragraphs that are too wide, in all sources
    #[arg(long)]
    wrap: bool,
}

/// Checks the sources against the budget, or prints the findings below some paths.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.wrap {
        return wrap_all();
    }
    let all = findings()?;
    if !args.paths.is_empty() {
        let below =
            |finding: &&Finding| args.paths.iter().any(|path| finding.file.starts_with(path));
        let shown: Vec<_> = all.iter().filter(below).collect();
        shown.iter().for_each(|finding| println!("{finding}"));
        println!("{} findings", shown.len());
        return Ok(ExitCode::from(u8::from(!shown.is_empty())));
    }
    let (has, budget) = (
        counts(&all),
        parse(&fs::read_to_string(workspace::root().join(BUDGET)).unwrap_or_default())?,
    );
    if args.lower {
        return lower(&has, &budget);
    }
    let text = compare(&all, &has, &budget);
    print!("{text}");
    let total = |of: &Counts| of.values().sum::<usize>();
    println!("prose: {} findings, {} allowed", total(&has), total(&budget));
    Ok(ExitCode::from(u8::from(!text.is_empty())))
}

/// Runs the check as a step of a report.
pub fn check(report: &mut Report) -> Result<(), Failure> {
    let mut prose = workspace::cargo();
    report.run_step("prose", prose.args(["run", "--quiet", "-p", "xtask", "--", "prose"]))
}

/// The Rust sources, with their texts.
fn sources() -> Result<Vec<(String, String)>, Failure> {
    // With the files that are not committed yet, without the ignored ones.
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"];
    let listed = workspace::program("git").args(arguments).output()?;
    if !listed.status.success() {
        return Err("prose: git ls-files failed: the sources are not in a git repository".into());
    }
    // git lists a deleted file until the deletion is committed.
    // The rules themselves name what they refuse.
    let is_rule = |file: &str| file.starts_with("tools/xtask/src/sources/prose/");
    let read = |file: &str| {
        Some((file.to_owned(), fs::read_to_string(workspace::root().join(file)).ok()?))
    };
    let files = String::from_utf8(listed.stdout)?;
    not_empty(files.lines().filter(|file| !is_rule(file)).filter_map(read).collect())
}

/// Fails if there is no source, which would make every check pass.
fn not_empty(sources: Vec<(String, String)>) -> Result<Vec<(String, String)>, Failure> {
    if sources.is_empty() {
        return Err("prose: git ls-files lists no Rust sources".into());
    }
    Ok(sources)
}

fn findings() -> Result<Vec<Finding>, Failure> {
    Ok(sources()?.iter().flat_map(|(file, text)| rules::check(file, text)).collect())
}

fn wrap_all() -> Result<ExitCode, Failure> {
    for (file, text) in sources()? {
        let wrapped = wrap::wrapped(&text);
        if wrapped != text {
            fs::write(workspace::root().join(&file), wrapped)?;
            println!("{file}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The first two directories of a path, which identify a crate.
fn folder(file: &str) -> String {
    file.split('/').take(2).collect::<Vec<_>>().join("/")
}

fn counts(all: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in all {
        *counts.entry((finding.rule, folder(&finding.file))).or_default() += 1;
    }
    counts
}

/// Parses lines of `rule folder count`.
fn parse(text: &str) -> Result<Counts, Failure> {
    let of = |line: &str| {
        let [rule, folder, count] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        Some(((Rule::from_name(rule)?, folder.to_owned()), count.parse().ok()?))
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            of(line).ok_or_else(|| format!("{BUDGET}: {line:?}: expected RULE FOLDER COUNT").into())
        })
        .collect()
}

/// Description of all deviations; empty if the counts equal the budget.
fn compare(all: &[Finding], has: &Counts, budget: &Counts) -> String {
    let mut text = String::new();
    let both = has.keys().chain(budget.keys()).collect::<std::collections::BTreeSet<_>>();
    for key @ (rule, folder_of) in both {
        let of = |counts: &Counts| counts.get(key).copied().unwrap_or(0);
        let (is, may) = (of(has), of(budget));
        if is > may {
            for finding in
                all.iter().filter(|one| one.rule == *rule && folder(&one.file) == *folder_of)
            {
                let _ = writeln!(text, "{finding}");
            }
            let _ =
                writeln!(text, "prose: {folder_of}: {is} findings of rule {rule}, {may} allowed");
        } else if is < may {
            let _ = writeln!(
                text,
                "prose: {folder_of}: {is} findings of rule {rule}, {may} allowed: run scripts/prose --lower"
            );
        }
    }
    text
}

fn lower(has: &Counts, budget: &Counts) -> Result<ExitCode, Failure> {
    let allowed =
        |key| budget.get(key).copied().unwrap_or(if budget.is_empty() { usize::MAX } else { 0 });
    let over: Vec<_> = has.iter().filter(|(key, is)| **is > allowed(key)).collect();
    if let Some(((rule, folder), is)) = over.first() {
        return Err(format!(
            "prose: {folder}: {is} findings of rule {rule}: more than the budget, which never rises"
        )
        .into());
    }
    let mut text = String::from(
        "# Findings of scripts/prose that remain: RULE FOLDER COUNT. Counts only fall (scripts/prose --lower).\n",
    );
    for ((rule, folder), count) in has {
        let _ = writeln!(text, "{rule} {folder} {count}");
    }
    fs::write(workspace::root().join(BUDGET), text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: Rule, file: &str) -> Finding {
        Finding { file: file.to_owned(), line: 1, rule, what: "x".to_owned() }
    }

    #[test]
    fn budget_is_compared_by_rule_and_folder() {
        let all =
            [found(Rule::Words, "crates/a/src/x.rs"), found(Rule::Words, "crates/a/tests/y.rs")];
        let budget = |text| parse(text).expect("three words a line");
        assert_eq!(compare(&all, &counts(&all), &budget("# a comment\nwords crates/a 2\n")), "");
        let over = compare(&all, &counts(&all), &budget("words crates/a 1\nwidth crates/a 1\n"));
        assert!(over.contains("crates/a/tests/y.rs:1: words: x"), "{over}");
        assert!(over.contains("crates/a: 2 findings of rule words, 1 allowed\n"), "{over}");
        assert!(
            over.contains(
                "crates/a: 0 findings of rule width, 1 allowed: run scripts/prose --lower"
            ),
            "{over}"
        );
        assert!(parse("words crates/a many").is_err() && parse("grammar crates/a 1").is_err());
    }

    #[test]
    fn empty_list_of_sources_is_an_error() {
        assert!(not_empty(Vec::new()).is_err());
        assert!(not_empty(vec![("a.rs".to_owned(), String::new())]).is_ok());
    }
}
