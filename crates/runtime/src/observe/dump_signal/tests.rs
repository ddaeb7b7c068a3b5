use super::*;

#[test]
fn signals_are_recognised_by_name_and_number() {
    assert_eq!(parse("USR2"), Some(libc::SIGUSR2));
    assert_eq!(parse("SIGQUIT"), Some(libc::SIGQUIT));
    assert_eq!(parse("RTMIN+3"), Some(libc::SIGRTMIN() + 3));
    for none in ["", "12", "SEGV", "KILL", "TRAP", "RTMIN+99", "RTMIN+-1", "usr2"] {
        assert_eq!(parse(none), None, "{none}");
    }
}
