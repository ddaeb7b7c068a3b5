//! The project's documents are held against the tree: what they name must exist.

use std::path::Path;

use kumihimo_tests::documents::{BadInput, bad_inputs, declared_locks, find_test, lock_order};
use kumihimo_tests::root;

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn every_bad_input_has_its_test() {
    let rows = bad_inputs(&read("CAVEATS.md")).expect("the table is well formed");
    assert!(!rows.is_empty(), "CAVEATS.md has no table of bad input");
    let missing: Vec<_> = rows
        .iter()
        .flat_map(|row| &row.tests)
        .filter_map(|test| find_test(&root(), test).err())
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_row_without_a_test_is_refused() {
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
fn a_named_test_that_does_not_exist_is_found() {
    let file = "tests/tests/documents.rs";
    assert_eq!(
        find_test(&root(), &format!("{file}::a_named_test_that_does_not_exist_is_found")),
        Ok(())
    );
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

const DOCUMENTS: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CAVEATS.md", "lab/README.md"];

/// Sources in backticks, `src/` and the folder of all crates left out: `runtime/wait/park.rs`.
#[test]
fn every_source_that_a_document_names_exists() {
    let mut sources = Vec::new();
    for folder in ["crates", "examples", "lab", "scripts", "servers", "tests", "tools"] {
        each_source(&root().join(folder), &mut |path, _| sources.push(format!("/{path}")));
    }
    let short = |path: &String| path.replace("/src/", "/");
    let names: Vec<String> = sources.iter().map(short).chain(sources.iter().cloned()).collect();
    let (mut named, mut missing) = (0, Vec::new());
    for document in DOCUMENTS {
        for word in read(document).split('`').skip(1).step_by(2) {
            let path = word.split("::").next().unwrap_or_default();
            if !path.ends_with(".rs") || path.contains([' ', '*', '{', '<']) {
                continue;
            }
            named += 1;
            if !names.iter().any(|name| name.ends_with(&format!("/{path}"))) {
                missing.push(format!("{document}: {path}"));
            }
        }
    }
    assert!(named > 100, "{named}: the documents name their sources differently");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_relative_link_of_a_document_leads_to_a_file() {
    let (mut links, mut missing) = (0, Vec::new());
    for document in DOCUMENTS {
        let folder = root().join(document);
        let folder = folder.parent().expect("a folder");
        for target in read(document).split("](").skip(1) {
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
    assert!(links > 10, "{links}: the documents link differently");
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

/// Calls `f` with the path (from the root) and the text of every source file below `folder`.
fn each_source(folder: &Path, f: &mut impl FnMut(&str, &str)) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            each_source(&path, f);
        } else if path.extension().is_some_and(|e| e == "rs") {
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
        each_source(&krate.path().join("src"), &mut |path, text| {
            // What stands under loom only is loom's.
            if path.ends_with("/loom.rs") || path.ends_with("/model_memory.rs") {
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
fn a_lock_order_that_falls_is_refused() {
    let good = "# comment\n\n10 outer a.rs::b the things\n20 inner a.rs::c other things\n";
    assert_eq!(lock_order(good).map(|locks| locks.len()), Ok(2));
    assert!(lock_order("20 inner a.rs::c things\n10 outer a.rs::b things\n").is_err());
    assert!(lock_order("10 outer a.rs the things\n").is_err());
    assert!(lock_order("10 outer a.rs::b\n").is_err());
}
