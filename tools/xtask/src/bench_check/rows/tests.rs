use std::collections::BTreeSet;

use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn rows_have_distinct_names_and_programs_that_print_their_metrics() {
    let distinct: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
    assert_eq!(distinct.len(), ROWS.len());
    for row in ROWS {
        if let Program::Micro(micro) = row.program {
            assert_eq!((micro.metric, micro.better), (row.metric, row.better), "{}", row.name);
            assert!(micro.runs > 0 && micro.operations > 0.0, "{}", row.name);
        }
    }
}

#[test]
fn rates_are_better_higher_and_all_else_lower() {
    for row in ROWS {
        assert_eq!(row.better == Higher, row.unit == "1/s", "{}", row.name);
    }
}

#[test]
fn rows_are_chosen_by_name_once_each() {
    let chosen = choose(&names(&["yield", "echo-p99", "yield"])).unwrap();
    assert_eq!(chosen.iter().map(|row| row.name).collect::<Vec<_>>(), ["yield", "echo-p99"]);
    assert_eq!(choose(&[]).unwrap().len(), ROWS.len());
}

#[test]
fn unknown_row_is_named_beside_the_known() {
    let why = choose(&names(&["yield", "speed"])).unwrap_err();
    assert!(why.contains("\"speed\"") && why.contains("gate-null"), "{why}");
}

#[test]
fn rows_of_one_program_share_its_runs() {
    let program = |name: &str| choose(&names(&[name])).unwrap()[0].program;
    assert!(program("echo-rate").is_same(program("echo-cpu")));
    assert!(program("files-stat").is_same(program("files-pread")));
    assert!(!program("gate-null").is_same(program("gate-64")));
    assert!(!program("fork").is_same(program("bulk")));
    assert!(!program("kv").is_same(program("yield")));
}
