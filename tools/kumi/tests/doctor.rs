//! `kumi doctor` on a machine that refuses. One test: what is refused stays refused in this process, and in those that it starts.

use std::process::Command;

use kumihimo_tests::refusal::refuse;

/// What doctor says.
fn doctor() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kumi")).arg("doctor").output().expect("kumi");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The line about one source of events, or means of preemption, and the one after it.
fn about<'a>(said: &'a str, what: &str) -> (&'a str, &'a str) {
    let mut lines = said.lines().skip_while(|line| !line.starts_with(&format!("{what} ")));
    (lines.next().expect("a line for each"), lines.next().unwrap_or_default())
}

#[test]
fn doctor_says_what_is_refused_and_what_would_enable_it() {
    let said = doctor();
    assert_eq!(said.matches("used unless KUMI_EVENTS says otherwise").count(), 1, "{said}");
    assert_eq!(said.matches("used unless KUMI_PREEMPT says otherwise").count(), 1, "{said}");
    assert!(about(&said, "events: off").0.contains(" yes: "), "{said}");
    for errno in [libc::EPERM, libc::ENOSYS] {
        refuse(&[libc::SYS_bpf, libc::SYS_perf_event_open].map(|call| (call, errno))).expect("seccomp");
        let said = doctor();
        for what in ["events: bpf", "events: perf", "preemption: clock"] {
            let (line, next) = about(&said, what);
            assert!(line.contains(" no: ") && next.contains("to enable: "), "{said}");
        }
        assert!(about(&said, "preemption: signal").0.contains("used unless KUMI_PREEMPT says otherwise"), "{said}");
        assert!(about(&said, "events: watch").0.contains("used unless KUMI_EVENTS says otherwise"), "{said}");
    }
}
