use super::*;

fn shell(script: &str) -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Running::start(command, Cores::All).unwrap()
}

#[test]
fn program_receives_and_prints_lines() {
    let mut echo = shell("while read line; do echo \"said $line\"; done");
    echo.tell("one").unwrap();
    assert_eq!(echo.hear().unwrap(), "said one");
    echo.tell("two").unwrap();
    assert_eq!(echo.hear_word("said").unwrap(), "two");
    assert_eq!(echo.finish().unwrap(), Vec::<String>::new());
}

#[test]
fn output_is_collected_until_the_end() {
    assert_eq!(shell("echo one; echo two").finish().unwrap(), ["one", "two"]);
}

#[test]
fn program_that_cannot_be_started_is_named() {
    let error = Running::start(Command::new("/no/such/kumi"), Cores::All).unwrap_err();
    assert!(error.to_string().contains("/no/such/kumi"), "{error}");
}

#[test]
fn failed_program_is_named_with_its_complaint() {
    let error = shell("echo lost a page >&2; exit 3").finish().unwrap_err();
    let Trouble::Failed(why) = error else { panic!("{error:?}") };
    assert!(why.contains("lost a page") && why.contains('3') && why.contains("exit 3"), "{why}");
    let Trouble::Failed(why) = shell("kill -SEGV $$").hear().unwrap_err() else { panic!() };
    assert!(why.contains("signal"), "{why}");
}

#[test]
fn refusal_is_told_from_a_failure() {
    let complaint = "echo kumi: refused: no such kernel >&2; exit 1";
    assert_eq!(shell(complaint).finish(), Err(Trouble::Refused("no such kernel".to_owned())));
    let said = shell("echo refused: no FUSE; sleep 0.01").hear_word("ready");
    assert_eq!(said, Err(Trouble::Refused("no FUSE".to_owned())));
}

#[test]
fn unknown_benchmark_or_option_is_missing() {
    for complaint in
        ["kumi: sideways: no such benchmark", "error: unrecognized subcommand 'bench-child'"]
    {
        let error = shell(&format!("echo \"{complaint}\" >&2; exit 2")).finish().unwrap_err();
        assert!(matches!(error, Trouble::Missing(_)), "{error:?}");
    }
}

#[test]
fn unexpected_line_is_an_error_that_repeats_it() {
    let error = shell("echo hello; read line").hear_word("ready").unwrap_err();
    assert!(
        error.to_string().contains("\"hello\"") && error.to_string().contains("ready"),
        "{error}"
    );
}

#[test]
fn program_that_ignores_the_end_of_its_input_is_terminated() {
    let mut sleeper = shell("exec sleep 1000");
    sleeper.terminate().unwrap();
}

#[test]
fn cpu_time_of_a_busy_program_grows() {
    let mut busy = shell("echo ready; while :; do :; done");
    busy.hear_word("ready").unwrap();
    let before = busy.cpu_time().unwrap();
    while busy.cpu_time().unwrap() == before {
        thread::yield_now();
    }
}
