//! Programs with `kumihimo::interpose!`: how they begin and end.

use std::process::{Command, Output};

const EXITS: &str = env!("CARGO_BIN_EXE_exits");
const RUNTIMES: &str = env!("CARGO_BIN_EXE_runtimes");
const WAITS: &str = env!("CARGO_BIN_EXE_waits");

fn run(program: &str, argument: &str) -> Output {
    Command::new(program).arg(argument).output().expect("it begins")
}

fn text(of: &[u8]) -> String {
    String::from_utf8_lossy(of).into_owned()
}

#[track_caller]
fn exits(argument: &str, code: i32) -> String {
    let output = run(EXITS, argument);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    text(&output.stderr)
}

#[test]
fn result_of_main_is_the_exit_code() {
    assert_eq!(exits("code", 7), "");
    assert_eq!(exits("error", 1), "Error: \"on purpose\"\n");
    assert_eq!(exits("detached", 0), "");
    assert_eq!(exits("exit", 9), "");
}

#[test]
fn panic_of_main_is_reported_once() {
    let said = exits("panic", 101);
    assert_eq!(said.matches("on purpose").count(), 1, "{said}");
    assert!(said.contains("thread 'main'"), "{said}");
}

#[test]
fn program_may_build_its_runtime_or_none() {
    for argument in ["implicit", "built"] {
        let output = run(RUNTIMES, argument);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(text(&output.stdout), "done\n");
    }
}

#[test]
fn waits_of_std_need_few_kernel_threads() {
    let output = run(WAITS, "");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn settings_that_are_wrong_end_the_program() {
    let output = Command::new(EXITS).arg("code").env("KUMI_VPS", "many").output().expect("begins");
    assert_eq!(output.status.code(), Some(101), "{output:?}");
    assert!(text(&output.stderr).contains("KUMI_VPS"), "{output:?}");
}
