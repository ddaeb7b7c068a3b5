//! `kumi doctor` on a machine with refused features, and with other settings. A separate test
//! program, because a refused feature stays refused in this process and its children.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use kumihimo::resource::Locking;
use kumihimo_tests::control_group::ControlGroup;
use kumihimo_tests::refusal::refuse;
use kumihimo_tests::skip;

/// The output of `kumi doctor`.
fn doctor() -> String {
    doctor_with(&[])
}

/// The output with these variables in the environment. Other Kumihimo variables are removed.
fn doctor_with(settings: &[(&str, &str)]) -> String {
    said_by(command().envs(settings.iter().copied()))
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumi"));
    command.arg("doctor");
    for setting in &kumihimo_config::VARIABLES {
        command.env_remove(setting.name);
    }
    command
}

fn said_by(command: &mut Command) -> String {
    let output = command.output().expect("kumi");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The line about an event source or a means of preemption, and the next line.
fn about<'a>(said: &'a str, what: &str) -> (&'a str, &'a str) {
    let mut lines = said.lines().skip_while(|line| !line.starts_with(&format!("{what} ")));
    (lines.next().expect("a line for each"), lines.next().unwrap_or_default())
}

#[test]
fn reader_may_close_the_pipe_and_a_full_disk_is_an_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command().stdout(writer).output().expect("kumi");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = command().stdout(full).output().expect("kumi");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "kumi: standard output: No space left on device (os error 28)\n");
}

#[test]
fn doctor_reports_refusals_and_how_to_enable_each() {
    let said = doctor();
    assert_eq!(said.matches("used unless KUMI_EVENTS selects another one").count(), 1, "{said}");
    assert_eq!(said.matches("used unless KUMI_PREEMPT selects another one").count(), 1, "{said}");
    assert!(about(&said, "events: off").0.contains(" yes: "), "{said}");
    for errno in [libc::EPERM, libc::ENOSYS] {
        refuse(&[libc::SYS_bpf, libc::SYS_perf_event_open].map(|call| (call, errno)))
            .expect("seccomp");
        let said = doctor();
        for what in ["events: bpf", "events: perf", "preemption: clock"] {
            let (line, next) = about(&said, what);
            assert!(line.contains(" no: ") && next.contains("to enable: "), "{said}");
        }
        assert!(
            about(&said, "preemption: signal")
                .0
                .contains("used unless KUMI_PREEMPT selects another one"),
            "{said}"
        );
        assert!(
            about(&said, "events: watch").0.contains("used unless KUMI_EVENTS selects another one"),
            "{said}"
        );
    }
}

#[test]
fn doctor_reports_where_the_program_at_the_tracepoint_comes_from() {
    let said = doctor_with(&[("KUMI_LAB", "bpf=switch")]);
    let (line, next) = about(&said, "events: bpf");
    if line.contains(" no: ") {
        return skip("doctor_reports_where_the_program_at_the_tracepoint_comes_from", line);
    }
    let has_program =
        next.trim_start().starts_with("program ") && next.contains(" at sched_switch");
    let origins = [", found; ", ", loaded by this process; ", ", loaded for this process alone: "];
    assert!(has_program && origins.iter().any(|origin| next.contains(origin)), "{said}");
    let said = doctor();
    let (line, next) = about(&said, "events: bpf");
    assert!(line.contains(" no: ") || !next.contains("sched_switch"), "{line} {next}");
}

#[test]
fn doctor_reports_the_runtime_directory() {
    let folder = std::env::temp_dir().join(format!("kumi-doctor-{}", std::process::id()));
    let place = folder.to_str().expect("text");
    let said = doctor_with(&[("KUMI_DIR", place)]);
    assert!(
        about(&said, "run-time directory").0.ends_with(&format!(" {place} (KUMI_DIR)")),
        "{said}"
    );
    assert!(
        about(&said, "address space")
            .0
            .contains(" yes: a new address space gets a number (1 in a test)"),
        "{said}"
    );
    // `doctor` has returned the number and left no socket.
    let mut left: Vec<_> =
        folder.read_dir().expect("it is there").map(|e| e.expect("an entry").file_name()).collect();
    left.sort();
    assert_eq!(left, ["1", "next"]);
    std::fs::remove_dir_all(&folder).expect("ours");

    let said = doctor_with(&[("KUMI_DIR", "off")]);
    let (line, next) = about(&said, "address space");
    assert!(line.contains(" no: KUMI_DIR=off") && next.contains("to enable: "), "{said}");
    assert!(!folder.exists());

    let said = doctor_with(&[("KUMI_DIR", "relative")]);
    assert!(
        about(&said, "address space")
            .0
            .contains(" no: KUMI_DIR=relative: expected an absolute path, or off"),
        "{said}"
    );
}

#[test]
fn doctor_reports_the_locking_design() {
    let has_kind = "kind".parse::<Locking>().is_ok();
    let kind = if has_kind { "kind (KUMI_LAB)" } else { "vp (used unless" };
    for (settings, expected) in [
        (&[][..], "locking design vp (used unless KUMI_LAB=locking=... selects another one)"),
        (&[("KUMI_LAB", "locking=kind")], &format!("locking design {kind}")),
    ] {
        let said = doctor_with(settings);
        assert!(about(&said, "resource table").0.contains(expected), "{said}");
    }
}

#[test]
fn doctor_reports_where_cores_are_shared() {
    let folder = std::env::temp_dir().join(format!("kumi-doctor-board-{}", std::process::id()));
    let place = folder.to_str().expect("text");
    let said = doctor_with(&[("KUMI_DIR", place)]);
    let line = about(&said, "board").0;
    assert!(
        line.contains(&format!(" yes: {place}/board (KUMI_ARBITER")) && line.contains("none yet"),
        "{said}"
    );
    assert!(!folder.join("board").exists(), "doctor must not create a board");
    assert!(about(&said, "arbiter").0.contains("KUMI_ARBITER"), "{said}");
    assert!(about(&said, "CPU time").0.contains("unlimited"), "{said}");
    std::fs::write(folder.join("board"), "something else").expect("ours");
    let said = doctor_with(&[("KUMI_DIR", place)]);
    assert!(about(&said, "board").0.contains("it is not a board"), "{said}");
    let said = doctor_with(&[("KUMI_DIR", place), ("KUMI_SHARE", "half")]);
    assert!(about(&said, "board").0.contains(" no: KUMI_SHARE=half: expected"), "{said}");
    assert!(
        about(&said, "refused setting").0.contains("KUMI_SHARE=half: expected per cent"),
        "{said}"
    );
    let said =
        doctor_with(&[("KUMI_DIR", place), ("KUMI_SHARE", "50%,hard"), ("KUMI_ARBITER", "none")]);
    assert!(about(&said, "board").0.ends_with(" no: KUMI_ARBITER=none"), "{said}");
    assert!(about(&said, "arbiter").0.contains(" off: "), "{said}");
    assert!(about(&said, "CPU time").0.contains(" 50%,hard of a core (KUMI_SHARE)"), "{said}");
    std::fs::remove_dir_all(&folder).expect("ours");
}

#[test]
fn doctor_reports_the_mode_in_one_word() {
    let said = doctor_with(&[("KUMI_LAB", "tls=kernel")]);
    let line = about(&said, "mode").0;
    assert!(
        line.contains(" kernel-threads: ") && line.ends_with("(KUMI_LAB=tls=kernel)"),
        "{said}"
    );
    if kumihimo::runtime::mode() == kumihimo::runtime::Mode::Microprocesses {
        let said = doctor();
        assert!(about(&said, "mode").0.ends_with(" microprocesses"), "{said}");
    }
}

#[test]
fn doctor_claims_no_preemption_where_events_are_off() {
    let said = doctor_with(&[("KUMI_EVENTS", "off")]);
    assert!(about(&said, "preemption").0.contains(" no: the event source is off"), "{said}");
    assert!(!said.contains("KUMI_PREEMPT selects another one"), "{said}");
    let said = doctor_with(&[("KUMI_PREEMPT", "off")]);
    assert!(about(&said, "preemption").0.contains(" no: "), "{said}");
}

/// Runs `command` with mounts of its own, which `change` alters before it begins. Skips `test` and
/// returns `None` where that is impossible.
fn with_own_mounts(
    test: &str,
    mut command: Command,
    change: impl Fn(fn(i32) -> std::io::Result<()>) -> std::io::Result<()> + Send + Sync + 'static,
) -> Option<Output> {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        skip(test, "not root");
        return None;
    }
    fn check(done: i32) -> std::io::Result<()> {
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
    // SAFETY: system calls only, with constants.
    unsafe {
        command.pre_exec(move || {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let none = std::ptr::null();
            let private = libc::MS_REC | libc::MS_PRIVATE;
            check(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
            change(check)
        });
    }
    match command.output() {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            skip(test, "no mount namespaces here");
            None
        }
        done => Some(done.expect("kumi")),
    }
}

/// Without /proc, every event source except `off` fails, and with them preemption.
#[test]
fn doctor_claims_no_preemption_without_proc() {
    const NAME: &str = "doctor_claims_no_preemption_without_proc";
    // SAFETY: a system call with constants.
    let ran = with_own_mounts(NAME, command(), |check| unsafe {
        check(libc::umount2(c"/proc".as_ptr(), libc::MNT_DETACH))
    });
    let Some(output) = ran else { return };
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(
        about(&said, "events: off").0.contains("used unless KUMI_EVENTS selects another one"),
        "{said}"
    );
    assert!(about(&said, "preemption").0.contains(" no: the event source is off"), "{said}");
    assert!(!said.contains("KUMI_PREEMPT selects another one"), "{said}");
}

/// Another user has taken the place of the run-time directory.
#[test]
fn doctor_names_a_place_that_is_passed_over() {
    const NAME: &str = "doctor_names_a_place_that_is_passed_over";
    let mut command = command();
    command.env_remove("XDG_RUNTIME_DIR");
    // SAFETY: system calls with constants.
    let ran = with_own_mounts(NAME, command, |check| unsafe {
        for place in [c"/run", c"/dev/shm", c"/tmp"] {
            let kind = c"tmpfs".as_ptr();
            check(libc::mount(kind, place.as_ptr(), kind, 0, std::ptr::null()))?;
        }
        check(libc::mkdir(c"/dev/shm/kumihimo-0".as_ptr(), 0o755))?;
        check(libc::chown(c"/dev/shm/kumihimo-0".as_ptr(), 54_321, 54_321))
    });
    let Some(output) = ran else { return };
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    let (place, why) = about(&said, "run-time directory");
    assert!(place.contains("/tmp/kumihimo-0"), "{said}");
    let part = "not used: run-time directory /dev/shm/kumihimo-0 belongs to user 54321";
    assert!(why.contains(part), "{said}");
}

#[test]
fn doctor_prints_the_limit_on_kernel_threads() {
    let line =
        |settings: &[(&str, &str)]| about(&doctor_with(settings), "kernel threads").0.to_owned();
    assert!(
        line(&[("KUMI_KERNEL_THREADS", "99")])
            .ends_with(" at most 99 kernel threads (KUMI_KERNEL_THREADS)")
    );
    let limit = kumihimo_events::limit::Limit::of_machine();
    assert!(line(&[]).contains(" at most "), "{limit}");
    assert_eq!(
        line(&[]).contains("KUMI_KERNEL_THREADS allows more"),
        limit.threads == 10_000,
        "{limit}"
    );
}

#[test]
fn doctor_reports_the_origin_of_the_number_of_vps() {
    let line = |said: &str| about(said, "virtual processors").0.to_owned();
    let said = doctor_with(&[("KUMI_VPS", "3")]);
    assert!(line(&said).contains(" 3, from KUMI_VPS (without it: "), "{said}");
    let said = doctor();
    let cores = kumihimo_events::cores::Cores::of_process();
    let ends = format!(" {cores} (used unless KUMI_VPS selects another number)");
    assert!(line(&said).ends_with(&ends), "{said}");
    const NAME: &str = "doctor_reports_the_origin_of_the_number_of_vps";
    let group = match ControlGroup::new(&["cpu"]) {
        Ok(group) => group,
        Err(why) => return skip(NAME, &why),
    };
    group.limit_cpu(40_000, 100_000);
    let (_, directory) = group.variable();
    let procs = format!("{directory}/cgroup.procs");
    let mut inside = command();
    // SAFETY: between fork and exec only open, write and close, whose text was allocated before.
    unsafe {
        inside.pre_exec(move || std::fs::write(&procs, "0"));
    }
    let said = said_by(&mut inside);
    let quota = format!("the CPU quota of {directory} (40000 us in each 100000 us, 0.40 cores)");
    assert!(line(&said).contains("1, from the ") && line(&said).contains(&quota), "{said}");
}

#[test]
fn doctor_prints_each_setting_with_its_origin_and_effect() {
    let said = doctor_with(&[
        ("KUMI_VPS", "3"),
        ("KUMI_LAB", "queue=ring,tls=nonsense"),
        ("KUMI_EVENTS", "ptrace"),
        ("KUMI_BOARD", "off"),
        ("KUMI_VPZ", "4"),
        ("KUMI_MY_OWN_THING", "5"),
    ]);
    for setting in &kumihimo_config::VARIABLES {
        assert!(about(&said, setting.name).0.ends_with(setting.effect), "{said}");
    }
    let starts = |name: &str, text: &str| {
        let line = about(&said, name).0;
        assert!(line[name.len()..].trim_start().starts_with(text), "{name}: {text}: {said}");
    };
    starts("KUMI_VPS", "3 (environment): ");
    starts("KUMI_STACK", "160k (default): ");
    let of_std = doctor_with(&[("RUST_MIN_STACK", "1000000")]);
    assert!(about(&of_std, "KUMI_STACK").0.contains(" 1000000 (RUST_MIN_STACK): "), "{of_std}");
    starts(
        "KUMI_EVENTS",
        "the first of bpf, perf, watch that the machine allows (default, because",
    );
    starts("lab queue", "ring (KUMI_LAB): ");
    starts("lab sticky", "on (default): ");
    starts("unknown variable", "KUMI_VPZ is not read: KUMI_VPS is similar");
    assert!(!said.contains("KUMI_MY_OWN_THING"), "{said}");
    for refused in [
        "KUMI_EVENTS=ptrace: expected bpf, perf, watch or off; no runtime begins",
        "KUMI_LAB=tls=nonsense: expected clone, donor, kernel or fail for tls; no runtime begins",
        "KUMI_BOARD=off: this variable was replaced, set KUMI_ARBITER=none instead; no runtime",
    ] {
        assert!(said.contains(&format!("{:<24} {refused}", "refused setting")), "{said}");
    }
}

#[test]
fn doctor_measures_waits_on_request() {
    let said = said_by(command().arg("--waits"));
    let waits = |said: &str| said.lines().filter(|line| line.contains(" us of CPU time, ")).count();
    assert_eq!(waits(&doctor()), 0);
    let threads = about(&said, "waits of threads").0;
    assert!(threads.contains(" us of CPU time, 1.00 times a thread's "), "{said}");
    // In 1:1 mode, the line for microprocesses has no figure.
    assert!(matches!(waits(&said), 1 | 3), "{said}");
}
