//! Checks the project's documents against the source tree: everything that they name must exist.

use std::path::Path;

use kumihimo_tests::book;
use kumihimo_tests::documents::{BadInput, bad_inputs, declared_locks, find_test, lock_order};
use kumihimo_tests::root;

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The pages with tables of bad input, and one that lists them.
const BAD_INPUT: &str = "docs/src/reference/bad-input";

#[test]
fn every_bad_input_row_names_its_tests() {
    let index = read(&format!("{BAD_INPUT}/index.md"));
    let (mut all, mut missing) = (0, Vec::new());
    for page in book::pages(&root().join(BAD_INPUT)) {
        let name = page.file_name().expect("a file").to_str().expect("UTF-8");
        if name == "index.md" {
            continue;
        }
        let text = std::fs::read_to_string(&page).expect("readable");
        let rows = bad_inputs(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!rows.is_empty(), "{name} has no table of bad input");
        let listed = format!("]({name}) | {} |", rows.len());
        assert!(index.contains(&listed), "{name}: index.md lacks {listed:?}");
        all += rows.len();
        let tests = rows.iter().flat_map(|row| &row.tests);
        missing.extend(tests.filter_map(|test| find_test(&root(), test).err()));
    }
    assert!(missing.is_empty(), "{missing:#?}");
    // A table that loses a row by accident changes this number.
    assert!(index.contains(&format!("There are {all} rows.")), "{all} rows");
}

/// The page of settings has a row for each variable and key, in the words of `crates/config`.
#[test]
fn settings_of_the_book_are_those_of_the_configuration() {
    let page = read("docs/src/reference/settings.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `KUMI_")).collect();
    let wanted: Vec<String> = kumihimo_config::VARIABLES
        .iter()
        .map(|s| format!("| `{}` | {} | {} | {} |", s.name, s.allowed, s.default, s.effect))
        .collect();
    assert_eq!(rows, wanted);
    let keys = page.split("\n## ").find(|section| section.starts_with("Keys"));
    let rows = keys.expect("a table of keys").lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<&str> = rows.collect();
    assert_eq!(rows.len(), kumihimo_config::KEYS.len());
    // The allowed values of `queue` and `locking` depend on the features of the build.
    for (row, key) in rows.iter().zip(&kumihimo_config::KEYS) {
        let begin = format!("| `{}` | ", key.name);
        let end = format!(" | {} | {} |", key.default, key.effect);
        assert!(row.starts_with(&begin) && row.ends_with(&end), "{row}: not {begin}...{end}");
    }
}

#[test]
fn row_without_a_test_is_refused() {
    let head = "| input | outcome | test |\n|---|---|---|\n";
    let row = BadInput {
        input: "x".into(),
        outcome: "y".into(),
        tests: vec!["a.rs::b".into(), "a.rs::c".into()],
    };
    assert_eq!(
        bad_inputs(&format!("{head}| x | y | `a.rs::b`, `a.rs::c` |\n\nno row\n")),
        Ok(vec![row])
    );
    assert!(bad_inputs(&format!("{head}| x | y | |\n")).is_err());
    assert!(bad_inputs(&format!("{head}| x | y |\n")).is_err());
    assert_eq!(bad_inputs("no table"), Ok(vec![]));
}

#[test]
fn missing_test_is_detected() {
    let file = "tests/tests/documents.rs";
    assert_eq!(find_test(&root(), &format!("{file}::missing_test_is_detected")), Ok(()));
    for wrong in
        ["no/such/file.rs::test", &format!("{file}::no_such_test"), &format!("{file}::read"), file]
    {
        assert!(find_test(&root(), wrong).is_err(), "{wrong}");
    }
}

#[test]
fn readme_states_the_minimum_rust_version_of_the_manifest() {
    let stated = format!("with Rust {} or newer", env!("CARGO_PKG_RUST_VERSION"));
    assert!(read("README.md").contains(&stated), "README.md lacks \"{stated}\"");
}

const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "lab/README.md"];

/// The documents and the pages of the book, as paths from the root.
fn documents() -> Vec<String> {
    let mut all: Vec<String> = DOCUMENTS.map(String::from).into();
    each_file(&root().join("docs/src"), "md", &mut |path, _| all.push(path.to_owned()));
    all
}

/// Sources in backticks, with `src/` and the folder of all crates or without:
/// `crates/runtime/src/wait/park.rs::park`. What follows the path are items in it.
#[test]
fn every_source_that_a_document_names_exists() {
    let mut sources = Vec::new();
    for folder in ["crates", "examples", "lab", "scripts", "servers", "tests", "tools"] {
        let folder = root().join(folder);
        each_file(&folder, "rs", &mut |path, text| {
            sources.push((format!("/{path}"), text.to_owned()));
        });
    }
    let (mut named, mut missing) = (0, Vec::new());
    for document in documents() {
        for word in read(&document).split('`').skip(1).step_by(2) {
            let (path, items) = word.split_once("::").unwrap_or((word, ""));
            if !path.ends_with(".rs") || path.contains([' ', '*', '{', '<']) {
                continue;
            }
            named += 1;
            let end = format!("/{path}");
            let mut found = sources.iter().filter(|(source, _)| {
                source.ends_with(&end) || source.replace("/src/", "/").ends_with(&end)
            });
            if !found.any(|(_, text)| items.split("::").all(|item| has_word(text, item))) {
                missing.push(format!("{document}: {word}"));
            }
        }
    }
    assert!(named > 100, "{named}: too few sources found, has their notation changed?");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether `word` stands in `text` by itself. An empty word does.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c == '_' || c.is_alphanumeric();
    word.is_empty()
        || text.match_indices(word).any(|(at, _)| {
            !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
        })
}

#[test]
fn a_word_is_found_only_by_itself() {
    assert!(has_word("fn park(why: Wait)", "park"));
    assert!(!has_word("fn park_micro() { unpark() }", "park"));
    assert!(has_word("unpark park", "park"));
}

#[test]
fn every_relative_link_of_a_document_leads_to_a_file() {
    let (mut links, mut missing) = (0, Vec::new());
    for document in documents() {
        let folder = root().join(&document);
        let folder = folder.parent().expect("a folder");
        for target in read(&document).split("](").skip(1) {
            let target = target.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            links += 1;
            if !folder.join(target).exists() {
                missing.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(links > 10, "{links}: too few links found, has their notation changed?");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_lock_of_the_order_exists() {
    for lock in lock_order(&read("lock-order.txt")).expect("the list is well formed") {
        let text = read(&lock.path);
        let declared = declared_locks(&text).contains(&&*lock.symbol);
        assert!(declared, "{}: {} declares no lock {}", lock.name, lock.path, lock.symbol);
    }
}

/// Calls `f` with the path (from the root) and the text of every file below `folder` whose name
/// ends in `extension`.
fn each_file(folder: &Path, extension: &str, f: &mut impl FnMut(&str, &str)) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            each_file(&path, extension, f);
        } else if path.extension().is_some_and(|e| e == extension) {
            let text = std::fs::read_to_string(&path).expect("readable");
            f(path.strip_prefix(root()).expect("below the root").to_str().expect("UTF-8"), &text);
        }
    }
}

#[test]
fn every_lock_is_in_the_order() {
    let order = lock_order(&read("lock-order.txt")).expect("the list is well formed");
    let mut missing = Vec::new();
    let mut found = 0;
    for krate in std::fs::read_dir(root().join("crates")).expect("a folder").flatten() {
        each_file(&krate.path().join("src"), "rs", &mut |path, text| {
            // Files that exist only under loom or in unit tests are excluded.
            if path.ends_with("/loom.rs")
                || path.ends_with("/tests.rs")
                || path.ends_with("/model_memory.rs")
                || path.contains("/src/model/")
            {
                return;
            }
            for name in declared_locks(text) {
                found += 1;
                if !order.iter().any(|lock| lock.path == path && lock.symbol == name) {
                    missing.push(format!("{path}::{name}"));
                }
            }
        });
    }
    assert!(
        missing.is_empty() && found >= order.len(),
        "{found} found, of which lock-order.txt lacks {missing:#?}"
    );
}

#[test]
fn decreasing_lock_order_is_refused() {
    let good = "# comment\n\n10 outer a.rs::b the things\n20 inner a.rs::c other things\n";
    assert_eq!(lock_order(good).map(|locks| locks.len()), Ok(2));
    assert!(lock_order("20 inner a.rs::c things\n10 outer a.rs::b things\n").is_err());
    assert!(lock_order("10 outer a.rs the things\n").is_err());
    assert!(lock_order("10 outer a.rs::b\n").is_err());
}
