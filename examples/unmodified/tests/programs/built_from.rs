//! What the examples are built from.

use std::process::Command;

/// The output of `cargo tree` for this package.
fn tree(arguments: &[&str]) -> String {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["tree", "--locked", "--offline", "-p", "kumihimo-examples-unmodified"])
        .args(["-e", "normal", "--prefix", "none"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let tree = command.output().expect("cargo");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).expect("text")
}

/// The crate `postgres` runs each connection's futures on the thread that calls it, in Tokio's
/// runtime for one thread. There is no pool of threads, and no other crate uses Tokio.
#[test]
fn tokio_has_no_pool_of_threads() {
    let users = tree(&["-i", "tokio", "-f", "{p}"]);
    for line in users.lines() {
        let known = ["tokio", "tokio-util", "tokio-postgres", "postgres"];
        let name = line.split(' ').next().expect("a name");
        assert!(known.contains(&name) || name == "kumihimo-examples-unmodified", "{users}");
    }
    let features = tree(&["-f", "{p} {f}"]);
    let tokio = features.lines().find(|line| line.starts_with("tokio v")).expect("below postgres");
    let features: Vec<_> = tokio.split([' ', ',']).collect();
    assert!(features.contains(&"rt"), "the line has other words: {tokio}");
    for unwanted in ["rt-multi-thread", "fs", "process", "signal", "full"] {
        assert!(!features.contains(&unwanted), "{tokio}");
    }
}

#[test]
fn programs_name_kumihimo_in_two_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
    let mut programs = 0;
    for program in std::fs::read_dir(folder).expect("the examples").flatten() {
        let text = std::fs::read_to_string(program.path()).expect("text");
        let code = text.lines().filter(|line| !line.starts_with("//"));
        let names: Vec<_> = code.filter(|line| line.contains("kumihimo::")).collect();
        assert_eq!(names, ["kumihimo::interpose!();", "#[kumihimo::main]"], "{program:?}");
        assert!(text.lines().count() <= 80, "{program:?}");
        programs += 1;
    }
    assert_eq!(programs, 9);
}
