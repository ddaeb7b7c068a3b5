//! The code blocks of the book, the README and CONTRIBUTING.md are held against the tree: programs,
//! manifests, commands. Rust that stands in a page is compiled by `tests/src/page_tests.rs`, and
//! lines that call `kumi` are parsed by `tools/kumi/tests/book.rs`.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use kumihimo_tests::book::{blocks, include, pages};
use kumihimo_tests::root;

fn text(path: &Path) -> String {
    read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The pages of the book, and the documents beside it.
fn documents() -> Vec<PathBuf> {
    let mut all = pages(&root().join("docs/src"));
    all.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    all
}

/// Calls `f` with each file below `folder`. Follows no folder of builds.
fn each_file(folder: &Path, f: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            each_file(&path, f);
        } else if path.is_file() {
            f(&path);
        }
    }
}

/// The sources of all tests of the folders with programs.
fn tests() -> String {
    let mut all = String::new();
    for folder in ["crates", "examples"] {
        each_file(&root().join(folder), &mut |path| {
            let is_test = path.iter().any(|part| part == "tests");
            if is_test && path.extension().is_some_and(|extension| extension == "rs") {
                all.push_str(&text(path));
            }
        });
    }
    all
}

/// A block in C or C++, and one in Rust named `rs`, shows a file, which a test builds and runs.
#[test]
fn every_program_that_a_page_shows_is_run_by_a_test() {
    let tests = tests();
    let (mut shown, mut wrong) = (BTreeSet::new(), Vec::new());
    for page in documents() {
        for block in blocks(&text(&page)) {
            if !["rs", "c", "cpp", "python"].contains(&block.info) {
                continue;
            }
            for line in &block.lines {
                let Some((file, _)) = include(line) else {
                    wrong.push(format!("{}: {line}: no included file", page.display()));
                    continue;
                };
                let name = file.rsplit('/').next().expect("a name");
                let program = name.split('.').next().expect("a name");
                let is_run = tests.contains(&format!("CARGO_BIN_EXE_{program}\""))
                    || tests.contains(&format!("\"{name}\""))
                    || tests.contains(&format!("/{name}\""));
                if !is_run {
                    wrong.push(format!("{}: no test runs {name}", page.display()));
                }
                shown.insert(name.to_owned());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(shown.len() > 12, "the pages show programs differently: {shown:?}");
}

/// A dependency on Kumihimo in a block has the version of this tree and features that exist.
#[test]
fn dependencies_of_the_pages_have_this_version_and_real_features() {
    let manifest = text(&root().join("crates/kumihimo/Cargo.toml"));
    let mut count = 0;
    for page in documents() {
        let own = text(&page);
        let shown = blocks(&own).into_iter().filter(|block| ["toml", "diff"].contains(&block.info));
        for line in shown.flat_map(|block| block.lines) {
            let Some(dependency) = line.trim_start_matches('+').strip_prefix("kumihimo = ") else {
                continue;
            };
            let mut quoted = dependency.split('"').skip(1).step_by(2);
            let version = quoted.next().expect("a version");
            assert!(env!("CARGO_PKG_VERSION").starts_with(version), "{}: {line}", page.display());
            for feature in quoted {
                let declared = format!("\n{feature} = [");
                assert!(manifest.contains(&declared), "{}: {line}", page.display());
            }
            count += 1;
        }
    }
    assert!(count >= 2, "{count}: the pages show dependencies differently");
}

/// The new side of a difference to a program is part of an example, which has a test.
#[test]
fn programs_that_a_difference_leads_to_are_examples() {
    let mut examples = Vec::new();
    each_file(&root().join("examples"), &mut |path| {
        if path.extension().is_some_and(|extension| extension == "rs") {
            examples.push(text(path));
        }
    });
    let mut count = 0;
    for page in documents() {
        for block in blocks(&text(&page)).iter().filter(|block| block.info == "diff") {
            let mut lines = block.lines.iter().filter(|line| !line.starts_with('-'));
            let head = lines.next().expect("a line");
            if !head.ends_with(".rs") {
                continue;
            }
            let new: String =
                lines.map(|line| format!("{}\n", line.get(1..).unwrap_or(""))).collect();
            assert!(examples.iter().any(|example| example.contains(&new)), "{}", page.display());
            count += 1;
        }
    }
    assert!(count > 0, "the guide shows its change differently");
}

/// The packages of the tree, by name, with their folders.
fn packages() -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for folder in ["crates", "examples", "lab", "servers", "tests", "tools"] {
        each_file(&root().join(folder), &mut |path| {
            if !path.ends_with("Cargo.toml") {
                return;
            }
            let manifest = text(path);
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""));
            let name = name.and_then(|rest| rest.strip_suffix('"')).expect("a name").to_owned();
            all.push((name, path.parent().expect("a folder").to_owned()));
        });
    }
    all
}

/// What is wrong with a call of cargo: a package, program or example that does not exist.
fn check_cargo(words: &[&str], packages: &[(String, PathBuf)]) -> Result<(), String> {
    let value = |option| words.iter().skip_while(|word| **word != option).nth(1).copied();
    let named = words.iter().zip(&words[1..]).filter(|(option, _)| **option == "-p");
    let mut folder = None;
    for (_, name) in named {
        let package = packages.iter().find(|(package, _)| package == name);
        folder = Some(&package.ok_or_else(|| format!("no package {name}"))?.1);
    }
    let kinds = [("--bin", "src/bin"), ("--example", "examples"), ("--test", "tests")];
    for (option, place) in kinds {
        let Some(name) = value(option).filter(|name| *name != "NAME") else { continue };
        let folder = folder.ok_or_else(|| format!("{option} {name} without a package"))?;
        let file = folder.join(place).join(format!("{name}.rs"));
        if !file.exists() && !folder.join(place).join(name).is_dir() {
            return Err(format!("no {}", file.display()));
        }
    }
    match value("--path").filter(|path| !path.starts_with("..")) {
        Some(path) if !root().join(path).join("Cargo.toml").exists() => {
            Err(format!("no package in {path}"))
        }
        _ => Ok(()),
    }
}

/// A line that calls a script, make, cargo or an xtask names one that exists, and so does a path
/// into the tree.
#[test]
fn commands_of_the_tree_exist() {
    let makefile = text(&root().join("Makefile"));
    let xtasks = text(&root().join("tools/xtask/src/main.rs"));
    let packages = packages();
    let (mut count, mut wrong) = (0, Vec::new());
    for page in documents() {
        let own = text(&page);
        for line in blocks(&own).iter().filter(|block| block.info == "sh").flat_map(|b| &b.lines) {
            let of_environment = |word: &&str| {
                word.split_once('=')
                    .is_some_and(|(name, _)| name.starts_with("KUMI_") || name.starts_with("RUST"))
            };
            let words: Vec<&str> = line.split_whitespace().skip_while(of_environment).collect();
            let result = match words[..] {
                ["make", target, ..] if !makefile.contains(&format!("\n{target}:")) => {
                    Err(format!("no target {target}"))
                }
                ["cargo", "xtask", task, ..] => {
                    let variant: String = task.split('-').map(capital).collect();
                    let exists = xtasks.contains(&format!("Command::{variant}"));
                    if exists { Ok(()) } else { Err(format!("no task {task}")) }
                }
                ["cargo", ..] => check_cargo(&words, &packages),
                _ => Ok(()),
            };
            wrong.extend(result.err().map(|what| format!("{}: {line}: {what}", page.display())));
            let folders = ["scripts/", "examples/", "crates/", "lab/", "tools/"];
            let paths = words.iter().filter(|word| folders.iter().any(|f| word.starts_with(f)));
            for path in paths {
                if !root().join(path.trim_end_matches('\'')).exists() {
                    wrong.push(format!("{}: {line}: no {path}", page.display()));
                }
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 50, "{count}: the pages show commands differently");
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

#[test]
fn wrong_calls_of_cargo_are_found() {
    let packages = packages();
    let check = |line: &str| check_cargo(&line.split_whitespace().collect::<Vec<_>>(), &packages);
    assert_eq!(check("cargo run -p kumihimo-examples --bin proxy"), Ok(()));
    assert_eq!(check("cargo install --path tools/kumi"), Ok(()));
    for wrong in [
        "cargo run -p kumihimo-exampels --bin proxy",
        "cargo run -p kumihimo-examples --bin no_such_program",
        "cargo run --bin proxy",
        "cargo install --path tools/no-such-tool",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}
