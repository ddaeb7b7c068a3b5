//! The project's documents are held against the tree: what they name must exist.

use kumihimo_tests::documents::{BadInput, bad_inputs, find_test, lock_order};
use kumihimo_tests::root;

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn every_bad_input_has_its_test() {
    let rows = bad_inputs(&read("CAVEATS.md")).expect("the table is well formed");
    assert!(!rows.is_empty(), "CAVEATS.md has no table of bad input");
    let missing: Vec<_> =
        rows.iter().flat_map(|row| &row.tests).filter_map(|test| find_test(&root(), test).err()).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_row_without_a_test_is_refused() {
    let head = "| input | outcome | test |\n|---|---|---|\n";
    let row = BadInput { input: "x".into(), outcome: "y".into(), tests: vec!["a.rs::b".into(), "a.rs::c".into()] };
    assert_eq!(bad_inputs(&format!("{head}| x | y | `a.rs::b`, `a.rs::c` |\n\nno row\n")), Ok(vec![row]));
    assert!(bad_inputs(&format!("{head}| x | y | |\n")).is_err());
    assert!(bad_inputs(&format!("{head}| x | y |\n")).is_err());
    assert_eq!(bad_inputs("no table"), Ok(vec![]));
}

#[test]
fn a_named_test_that_does_not_exist_is_found() {
    let file = "tests/tests/documents.rs";
    assert_eq!(find_test(&root(), &format!("{file}::a_named_test_that_does_not_exist_is_found")), Ok(()));
    for wrong in ["no/such/file.rs::test", &format!("{file}::no_such_test"), &format!("{file}::read"), file] {
        assert!(find_test(&root(), wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_lock_of_the_order_exists() {
    for lock in lock_order(&read("lock-order.txt")).expect("the list is well formed") {
        let text = read(&lock.path);
        let declared = text.contains(&format!("{}:", lock.symbol));
        assert!(declared, "{}: {} declares no {}", lock.name, lock.path, lock.symbol);
    }
}

#[test]
fn a_lock_order_that_falls_is_refused() {
    let good = "# comment\n\n10 outer a.rs::b the things\n20 inner a.rs::c other things\n";
    assert_eq!(lock_order(good).map(|locks| locks.len()), Ok(2));
    assert!(lock_order("20 inner a.rs::c things\n10 outer a.rs::b things\n").is_err());
    assert!(lock_order("10 outer a.rs the things\n").is_err());
    assert!(lock_order("10 outer a.rs::b\n").is_err());
}
