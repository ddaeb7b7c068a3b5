//! The book and the README are held against the tree: pages, links, code blocks, figures.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use kumihimo_tests::book::{anchors, blocks, include, links, pages, words};
use kumihimo_tests::root;

/// Words of a page.
const LENGTH: std::ops::RangeInclusive<usize> = 300..=1200;

/// Words of a decision, which has half a page.
const DECISION: std::ops::RangeInclusive<usize> = 50..=600;

/// Pages that are one table: rows with tests, the words of `crates/config`, results of programs.
const TABLES: [&str; 3] =
    ["reference/bad-input/", "reference/settings.md", "reference/programs.md"];

/// What the pages begin with that `cargo xtask book-figures` writes.
const GENERATED: &str = "<!-- Written by `cargo xtask book-figures`";

/// What a code block may be: `rs` is Rust that is included. Without a name it is text.
const LANGUAGES: [&str; 13] = [
    "",
    "rust",
    "rs",
    "rust,no_run",
    "rust,should_panic",
    "rust,compile_fail",
    "diff",
    "sh",
    "text",
    "toml",
    "c",
    "cpp",
    "python",
];

fn source() -> PathBuf {
    root().join("docs/src")
}

fn text(path: &Path) -> String {
    read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// `path` from the folder of the book's sources.
fn short(path: &Path) -> String {
    path.strip_prefix(source()).expect("below the sources").display().to_string()
}

/// A page that waits to be rewritten: it is not part of the book.
fn is_raw(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("raw-"))
}

/// The pages of the book, without the summary.
fn book() -> Vec<PathBuf> {
    let all = pages(&source());
    all.into_iter().filter(|page| !page.ends_with("SUMMARY.md") && !is_raw(page)).collect()
}

#[test]
fn every_page_is_in_the_summary_and_every_entry_exists() {
    assert!(book().len() >= 40, "{} pages", book().len());
    let listed = links(&text(&source().join("SUMMARY.md")));
    let distinct: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(distinct.len(), listed.len(), "an entry stands twice");
    let there: BTreeSet<String> = book().iter().map(|page| short(page)).collect();
    assert_eq!(distinct, there);
}

#[test]
fn pages_have_300_to_1200_words() {
    let mut wrong = Vec::new();
    for page in book() {
        let name = short(&page);
        let own = text(&page);
        if TABLES.iter().any(|table| name.starts_with(table)) || own.contains(GENERATED) {
            continue;
        }
        let is_decision = name.starts_with("decisions/") && !name.ends_with("index.md");
        let length = if is_decision { DECISION } else { LENGTH };
        let count = words(&own);
        if !length.contains(&count) {
            wrong.push(format!("{name}: {count} words"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_link_and_anchor_of_the_book_leads_to_something() {
    let (mut count, mut wrong) = (0, Vec::new());
    for page in book() {
        let own = text(&page);
        for link in links(&own) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = page.parent().expect("a folder").join(file);
            let target = if file.is_empty() { page.clone() } else { target };
            let Ok(target) = target.canonicalize() else {
                wrong.push(format!("{}: {link}: there is no such file", short(&page)));
                continue;
            };
            if !target.starts_with(source().canonicalize().expect("the sources")) {
                wrong.push(format!("{}: {link}: outside of the book", short(&page)));
            } else if !anchor.is_empty() && !anchors(&text(&target)).contains(&anchor.to_owned()) {
                wrong.push(format!("{}: {link}: there is no such heading", short(&page)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 50, "{count}: the pages link differently");
}

#[test]
fn every_rust_block_is_compiled_by_a_test() {
    let carried = text(&root().join("tests/src/page_tests.rs"));
    let mut wrong = Vec::new();
    for page in book() {
        let own = text(&page);
        let mut say = |what: &str| wrong.push(format!("{}: {what}", short(&page)));
        for block in blocks(&own) {
            if !LANGUAGES.contains(&block.info) {
                say(&format!("```{} is not a known kind of block", block.info));
            }
            let is_rust = block.info.starts_with("rust");
            let is_included = block.info == "rs";
            let includes: Vec<_> = block.lines.iter().filter_map(|line| include(line)).collect();
            for &(file, anchor) in &includes {
                let path = page.parent().expect("a folder").join(file);
                match (path.canonicalize(), anchor) {
                    (Err(_), _) => say(&format!("{file}: there is no such file")),
                    (Ok(path), Some(anchor)) => {
                        if !text(&path).contains(&format!("// ANCHOR: {anchor}\n")) {
                            say(&format!("{file} has no anchor {anchor}"));
                        }
                    }
                    (Ok(_), None) => {}
                }
            }
            // rustdoc takes `rs` for another language than Rust, and leaves the block alone.
            if is_included && includes.len() != block.lines.len() {
                say("```rs is for programs that are included");
            }
            if is_rust && !includes.is_empty() {
                say("a program that is included stands in ```rs");
            }
            if is_rust && !carried.contains(&format!("\"docs/src/{}\"", short(&page))) {
                say("has code that tests/src/page_tests.rs does not carry");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_step_of_the_start_includes_a_program_with_a_test() {
    let tests = text(&root().join("examples/tests/programs/start.rs"));
    let mut steps = 0;
    for page in pages(&source().join("start")) {
        for block in blocks(&text(&page)) {
            let Some((file, _)) = block.lines.iter().find_map(|line| include(line)) else {
                continue;
            };
            steps += 1;
            let program = file.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
            let program = program.unwrap_or_else(|| panic!("{file} is no program"));
            assert!(tests.contains(&format!("CARGO_BIN_EXE_{program}\"")), "{program} has no test");
        }
    }
    assert_eq!(steps, 5);
}

#[test]
fn readme_has_150_lines_and_12_kb_at_most() {
    let readme = text(&root().join("README.md"));
    let (lines, bytes) = (readme.lines().count(), readme.len());
    assert!(lines <= 150 && bytes <= 12 << 10, "{lines} lines, {bytes} bytes");
}

/// The pages of results have the rows of the reports in `lab/results` word for word: each row of a
/// page is in a report, and each figure of a report is on a page. Whether they are up to date in
/// every other respect is a test of `cargo xtask book-figures`.
#[test]
fn figures_of_the_benchmark_pages_are_those_of_the_reports() {
    let mut reports = BTreeSet::new();
    let mut figures = BTreeSet::new();
    for folder in std::fs::read_dir(root().join("lab/results")).expect("a folder").flatten() {
        let report = text(&folder.path().join("report.md"));
        reports.extend(report.lines().filter(|line| line.starts_with("| ")).map(str::to_owned));
        // A later report of one benchmark replaces its part of this one.
        if folder.file_name() != "all" {
            let is_figure =
                |line: &&str| line.ends_with(" reached |") || line.ends_with(" missed |");
            figures.extend(report.lines().filter(is_figure).map(str::to_owned));
        }
    }
    let mut shown = BTreeSet::new();
    for page in pages(&source().join("benchmarks")) {
        let own = text(&page);
        if !own.contains(GENERATED) || page.ends_with("index.md") {
            continue;
        }
        let rows = own.lines().filter(|line| line.starts_with("| "));
        for row in rows.filter(|row| !row.starts_with("| ---") && !row.starts_with("| figure |")) {
            assert!(reports.contains(row), "{}: in no report: {row}", short(&page));
            shown.insert(row.to_owned());
        }
    }
    let hidden: Vec<_> = figures.difference(&shown).collect();
    assert!(hidden.is_empty(), "on no page: {hidden:#?}");
    assert!(shown.len() > 500, "{}: the pages have other tables", shown.len());
}

/// A row `| what | VPs | ratio | [bench: figure](report) | command |` equals that of the report,
/// which the command has made.
#[test]
fn figures_of_the_readme_are_those_of_the_reports() {
    let readme = text(&root().join("README.md"));
    let mut figures = 0;
    for line in readme.lines().filter(|line| line.contains("](lab/results/")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, vps, ratio, row, command] = cells[..] else { panic!("not five cells: {line}") };
        let (name, file) = row.trim_start_matches('[').split_once("](").expect("a link");
        let (bench, figure) = name.split_once(": ").expect("bench: figure");
        let report = text(&root().join(file.trim_end_matches(')')));
        let made = format!("Made by {}", command.trim_end_matches('`'));
        assert!(report.contains(&made), "{file} was not made by {command}");
        let mut sections = report.split("\n## ");
        let section = sections.find(|section| section.lines().next() == Some(bench));
        let section = section.unwrap_or_else(|| panic!("{file} has no section {bench}"));
        let wanted = format!("| {figure} | {vps} | ");
        let is_row = |row: &str| {
            row.starts_with(&wanted) && row.split(" | ").nth(3) == Some(ratio.trim_matches('*'))
        };
        assert!(section.lines().any(is_row), "not in {file}: {line}");
        figures += 1;
    }
    assert_eq!(figures, 8);
}

/// The README's sizes of parked microprocesses are those of the report, in KB.
#[test]
fn sizes_of_the_readme_are_those_of_the_report() {
    let report = text(&root().join("lab/results/all/report.md"));
    let kilobytes = |variant: &str| {
        let start = format!("| parked_used | kumihimo | {variant} | ring | ");
        let rows = report.lines().filter(|line| line.starts_with(&start));
        let medians = rows.map(|row| row.split(" | ").nth(5).expect("a median").replace(',', ""));
        let rounded = medians.map(|bytes| (bytes.parse::<f64>().expect("bytes") / 1000.0).round());
        let rounded: BTreeSet<u64> = rounded.map(|kilobytes| kilobytes as u64).collect();
        assert_eq!(rounded.len(), 1, "{variant}: {rounded:?}");
        rounded.into_iter().next().expect("one size")
    };
    let claim =
        format!("takes about {} KB, a lean one {} KB", kilobytes("full"), kilobytes("lean"));
    assert!(text(&root().join("README.md")).contains(&claim), "README.md lacks {claim:?}");
}

/// Whether a text in backticks names a commit: eight digits of its hash, perhaps with `^`.
fn names_commit(page: &str) -> bool {
    let is_hash = |word: &str| {
        let word = word.strip_suffix('^').unwrap_or(word);
        word.len() == 8
            && word.contains(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
    };
    page.split('`').skip(1).step_by(2).any(is_hash)
}

/// Whether a page names a report of `lab/results`. Each report has a commit.
fn names_report(page: &str) -> bool {
    page.split("lab/results/").skip(1).any(|rest| {
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
        root().join("lab/results").join(name).join("report.md").exists()
    })
}

/// Whether a text has a time or a rate: a number before `ns`, `us`, `ms` or `/s`.
fn has_time(page: &str) -> bool {
    let words: Vec<&str> = page.split_whitespace().collect();
    let ends_in_digit = |word: &str| word.ends_with(|c: char| c.is_ascii_digit());
    words.windows(2).any(|pair| {
        let unit = pair[1].trim_end_matches(|c: char| !c.is_alphabetic());
        ends_in_digit(pair[0]) && ["ns", "us", "ms"].contains(&unit)
    }) || words
        .iter()
        .any(|word| word.split_once("/s").is_some_and(|(rate, _)| ends_in_digit(rate)))
}

/// Decisions whose times are settings, not measurements.
const SETTINGS_ONLY: [&str; 4] = [
    "018-one-spare-per-vp.md",
    "021-back-off-between-attempts.md",
    "040-turn-wait-in-cpu-time.md",
    "067-foreign-wakers-by-a-service.md",
];

/// Other pages with measured figures. A page with nanoseconds is one of them.
const MEASURED: [&str; 5] = [
    "internals/thread-local-storage.md",
    "internals/interpose-holders.md",
    "guides/crates.md",
    "reference/limits/allocators.md",
    "reference/limits/preemption.md",
];

/// A figure beside the pages of results carries its commit: in a section about its source, in the
/// text, or through the report that it is from.
#[test]
fn figures_elsewhere_name_their_commit() {
    for folder in std::fs::read_dir(root().join("lab/results")).expect("a folder").flatten() {
        let report = text(&folder.path().join("report.md"));
        let is_complete = report.contains("\nMade by `") && report.contains("\n| commit | ");
        assert!(is_complete, "{} lacks command or commit", folder.path().display());
    }
    let (mut sections, mut wrong) = (0, Vec::new());
    for page in book() {
        let (name, own) = (short(&page), text(&page));
        if own.contains(GENERATED) {
            continue;
        }
        if let Some((_, section)) = own.split_once("## Source of the figures\n") {
            sections += 1;
            if !names_commit(section) && !names_report(section) {
                wrong.push(format!("{name}: the source has no commit"));
            }
        } else if let Some(decision) = name.strip_prefix("decisions/") {
            let is_measured = has_time(&own) && !SETTINGS_ONLY.contains(&decision);
            if is_measured && decision != "index.md" {
                wrong.push(format!("{name}: figures without a source"));
            }
        } else if MEASURED.contains(&&*name) {
            if !names_commit(&own) {
                wrong.push(format!("{name}: figures without a commit"));
            }
        } else if !name.starts_with("benchmarks/") && own.contains(" ns ") {
            wrong.push(format!("{name}: is it measured? Then it belongs to MEASURED"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(sections > 25, "{sections}: the decisions name their sources differently");
}

#[test]
fn commits_and_times_are_recognised() {
    assert!(names_commit("at commit `778f5521^`") && names_commit("(`31c6bdb9`)"));
    assert!(!names_commit("`deadbeef`, `12345678x`, 31c6bdb9"));
    assert!(names_report("`lab/results/echo/report.md`") && !names_report("lab/results/no-such"));
    assert!(has_time("takes 12.5 us, then") && has_time("at 6,200/s") && !has_time("of 10 VPs"));
}
