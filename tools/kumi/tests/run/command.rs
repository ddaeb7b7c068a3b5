//! The command itself: arguments, exit codes, and what reaches the program.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kumihimo_tests::place::Place;
use kumihimo_tests::process::Ended;

use crate::bed::{
    Built, KUMI, LIBRARIES, build, copy_program, folder, is_able, run, threads, write_program,
};

fn kumi(place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(KUMI);
    command.arg("run").args(words).env("KUMI_DIR", place.path());
    command
}

#[test]
fn wrong_options_are_refused() {
    let test = "command::wrong_options_are_refused";
    let place = Place::new(test);
    for (words, says) in [
        (&["--nonsense", "true"][..], "--nonsense"),
        (&["--vps", "0", "true"], "0 is not in 1..=1024"),
        (&["--vps", "many", "true"], "invalid value 'many'"),
        (&["--policy", "best", "true"], "feedback, round-robin"),
        (&["--strict"], "<PROGRAM>"),
    ] {
        let ended = run(test, &mut kumi(&place, words));
        assert_eq!(ended.status.code(), Some(2), "{words:?}: {}", ended.told());
        assert!(ended.stderr.contains(says), "{words:?}: {}", ended.told());
    }
}

#[test]
fn missing_program_ends_with_127() {
    let test = "command::missing_program_ends_with_127";
    let place = Place::new(test);
    for name in ["./nothing", "/nowhere/nothing", "no-such-program-of-kumi", ""] {
        for options in [&[][..], &["--strict"]] {
            let ended = run(test, &mut kumi(&place, &[options, &[name]].concat()));
            assert_eq!(ended.status.code(), Some(127), "{name}: {}", ended.told());
            assert_eq!(ended.stderr, format!("kumi run: {name}: no such program\n"));
        }
    }
}

#[test]
fn file_that_is_no_program_ends_with_126() {
    let test = "command::file_that_is_no_program_ends_with_126";
    let place = Place::new(test);
    let text = place.0.join("text");
    fs::write(&text, "neither a program nor a script\n").expect("a file");
    for name in [text.to_str().expect("text"), place.path()] {
        let ended = run(test, &mut kumi(&place, &[name]));
        assert_eq!(ended.status.code(), Some(126), "{name}: {}", ended.told());
        assert!(ended.stderr.starts_with(&format!("kumi run: {name}: ")), "{}", ended.told());
    }
}

/// As by execvp(3).
#[test]
fn text_without_an_interpreter_is_run_by_the_shell() {
    let test = "command::text_without_an_interpreter_is_run_by_the_shell";
    if !is_able(test) {
        return;
    }
    let place = Place::new(test);
    let text = place.0.join("text");
    write_program(&text, b"echo of the shell; exit 6\n");
    let ended = run(test, &mut kumi(&place, &[text.to_str().expect("text")]));
    let told = (ended.status.code(), &*ended.stdout);
    assert_eq!(told, (Some(6), "of the shell\n"), "{}", ended.told());
}

#[test]
fn words_after_the_program_are_its_own() {
    let test = "command::words_after_the_program_are_its_own";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let words = ["--strict", "--vps", "", "two words", "--", "-x"];
    let plain = run(test, built.plainly().args(words));
    let ended = run(test, built.by_kumi(&["--policy", "round-robin"]).args(words));
    assert_eq!((ended.status, &ended.stdout), (plain.status, &plain.stdout), "{}", ended.told());
    assert_eq!(ended.stderr, "", "{}", ended.told());
}

#[test]
fn end_of_the_program_is_that_of_the_command() {
    let test = "command::end_of_the_program_is_that_of_the_command";
    let Some(built) = Built::new(test, "ends.c") else { return };
    let ended = run(test, &mut built.by_kumi(&["--strict"]));
    assert_eq!(ended.status.code(), Some(9), "{}", ended.told());
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGABRT] {
        let ended = run(test, built.by_kumi(&[]).arg(signal.to_string()));
        assert_eq!(ended.status.signal(), Some(signal), "{}", ended.told());
    }
}

/// What the shell of a program's child sees.
const SEEN: &str = "!echo \"vps $KUMI_VPS, run $KUMIHIMO_RUN, preload $LD_PRELOAD\"";

/// The value of LD_PRELOAD that the command makes.
fn preload() -> String {
    LIBRARIES.map(|name| folder().join(name).display().to_string()).join(":")
}

#[test]
fn options_reach_the_program_and_its_children() {
    let test = "command::options_reach_the_program_and_its_children";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let ended = run(test, built.by_kumi(&["--vps", "3"]).arg(SEEN));
    let wanted = format!("vps 3, run policy=feedback, preload {}\n", preload());
    assert_eq!(ended.stdout, wanted, "{}", ended.told());
    // A child on microprocesses, and its end.
    let inner = format!("!{} '!exit 5'", built.program.display());
    let ended = run(test, built.by_kumi(&["--strict"]).arg(&inner));
    assert_eq!(ended.status.code(), Some(5), "{}", ended.told());
    let line = "kumi run: 1 of 1 threads were microprocesses\n";
    assert_eq!(ended.stderr, line.repeat(2), "{}", ended.told());
}

#[test]
fn children_are_left_alone_on_request() {
    let test = "command::children_are_left_alone_on_request";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let inner = format!("!{} '{SEEN}'", built.program.display());
    let ended = run(test, built.by_kumi(&["--strict", "--no-children"]).arg(&inner));
    assert_eq!(ended.stdout, "vps , run , preload \n", "{}", ended.told());
    assert_eq!(threads(&ended), Some((1, 1)), "{}", ended.told());
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.told());
}

#[test]
fn libraries_that_were_preloaded_stay() {
    let test = "command::libraries_that_were_preloaded_stay";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let own = built.place.0.join("loaded.so");
    if build(test, "loaded.c", &["-shared", "-fPIC"], &own).is_none() {
        return;
    }
    let ended = run(test, built.by_kumi(&["--strict"]).arg(SEEN).env("LD_PRELOAD", &own));
    // `kumi` itself has it too, and the shell.
    assert!(ended.stdout.starts_with("loaded\n"), "{}", ended.told());
    let wanted = format!(", preload {}:{}\n", preload(), own.display());
    assert!(ended.stdout.ends_with(&wanted), "{}", ended.told());
    // The children get it without the libraries of `kumi run`.
    let options = ["--strict", "--no-children"];
    let ended = run(test, built.by_kumi(&options).arg(SEEN).env("LD_PRELOAD", &own));
    let wanted = format!("vps , run , preload {}\n", own.display());
    assert!(ended.stdout.ends_with(&wanted), "{}", ended.told());
    assert_eq!(threads(&ended), Some((1, 1)), "{}", ended.told());
}

#[test]
fn interpreter_of_a_script_runs_on_microprocesses() {
    let test = "command::interpreter_of_a_script_runs_on_microprocesses";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let script = built.place.0.join("script");
    let program = built.program.display();
    for first in [format!("#!{program}\n"), format!("#! /usr/bin/env {program}\n")] {
        write_program(&script, first.as_bytes());
        let mut command = kumi(&built.place, &["--strict", script.to_str().expect("text"), "word"]);
        let ended = run(test, &mut command);
        let wanted = format!("{}\nword\n", script.display());
        assert_eq!(ended.stdout, wanted, "{first}: {}", ended.told());
        assert_eq!(threads(&ended), Some((1, 1)), "{first}: {}", ended.told());
    }
}

/// The numbers and the name of the program in each line of a report, in the order of the names.
fn report(path: &Path) -> Vec<(u64, u64, String)> {
    let text = fs::read_to_string(path).expect("a report");
    let line = |line: &str| {
        let (micro, rest) = line.split_once(" of the ")?;
        let (all, rest) = rest.split_once(" threads of process ")?;
        let (_, rest) = rest.split_once(" (")?;
        let (name, _) = rest.split_once(") were microprocesses")?;
        Some((micro.parse().ok()?, all.parse().ok()?, name.to_owned()))
    };
    let mut lines: Vec<_> = text.lines().map(|own| line(own).expect(own)).collect();
    lines.sort_by(|a, b| a.2.cmp(&b.2));
    lines
}

#[test]
fn report_counts_however_the_program_ends() {
    let test = "command::report_counts_however_the_program_ends";
    let Some(built) = Built::new(test, "ends.c") else { return };
    // A comma separates the options that reach the program.
    let path = built.place.0.join("a,strict=on,report");
    let option = ["--report", path.to_str().expect("text")];
    for signal in [None, Some(libc::SIGKILL), Some(libc::SIGSEGV)] {
        let mut command = built.by_kumi(&[&option[..], &["--strict"]].concat());
        let ended = run(test, command.args(signal.map(|signal| signal.to_string())));
        assert_eq!(ended.status.signal(), signal, "{}", ended.told());
        assert_eq!(report(&path), [(1, 1, "ends".to_owned())], "{}", ended.told());
        assert!(!ended.stderr.contains("threads were microprocesses"), "{}", ended.told());
    }
}

#[test]
fn report_has_a_line_for_each_program() {
    let test = "command::report_has_a_line_for_each_program";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let path = built.place.0.join("report");
    fs::write(&path, "of an earlier run").expect("a file");
    // The children change to another folder.
    let inner = format!("!cd / && {} word '!exit 5'", built.program.display());
    let mut command = built.by_kumi(&["--report", "report"]);
    let ended = run(test, command.arg(&inner));
    assert_eq!(ended.status.code(), Some(5), "{}", ended.told());
    let sh = || (0, 0, "sh".to_owned());
    let shell = || (1, 1, "shell".to_owned());
    assert_eq!(report(&path), [sh(), sh(), shell(), shell()], "{}", ended.told());
    // Children that are left alone have none.
    let mut command = built.by_kumi(&["--no-children", "--report", "report"]);
    run(test, command.arg(&inner));
    assert_eq!(report(&path), [shell()]);
}

#[test]
fn report_that_cannot_be_written_is_refused() {
    let test = "command::report_that_cannot_be_written_is_refused";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let folder = built.place.path();
    for (path, why) in [
        (folder, "it exists and is no regular file"),
        ("/proc/nowhere/report", "No such file or directory"),
        ("/dev/null", "it exists and is no regular file"),
    ] {
        let ended = run(test, built.by_kumi(&["--report", path]).arg("word"));
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(125), ""), "{}", ended.told());
        assert!(ended.stderr.starts_with(&format!("kumi run: {path}: {why}")), "{}", ended.told());
    }
}

/// Copies `kumi` and its libraries to `to`, which is created.
fn install(to: &Path) -> PathBuf {
    fs::create_dir_all(to).expect("a folder");
    for name in LIBRARIES {
        copy_program(&folder().join(name), &to.join(name));
    }
    let kumi = to.join("kumi");
    copy_program(Path::new(KUMI), &kumi);
    kumi
}

/// Checks that the program runs on kernel threads after a line that contains `why`, and that
/// `--strict` refuses it with this reason.
fn runs_plainly(test: &str, built: &Built, kumi: &Path, why: &str) {
    let by_kumi = |options: &[&str]| -> Ended {
        let mut command = Command::new(kumi);
        built.prepare(&mut command);
        run(test, command.arg("run").args(options).arg(&built.program).arg("word"))
    };
    let ended = by_kumi(&[]);
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(0), "word\n"), "{}", ended.told());
    let is_told = ended.stderr.starts_with("kumi run: ")
        && ended.stderr.contains(why)
        && ended.stderr.ends_with("; it runs on kernel threads\n")
        && ended.stderr.lines().count() == 1;
    assert!(is_told, "{why}: {}", ended.told());
    let ended = by_kumi(&["--strict"]);
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(125), ""), "{}", ended.told());
    let is_told =
        ended.stderr.contains(why) && ended.stderr.ends_with("--strict allows no kernel threads\n");
    assert!(is_told, "{why}: {}", ended.told());
}

#[test]
fn libraries_of_another_version_are_not_used() {
    let test = "command::libraries_of_another_version_are_not_used";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let kumi = install(&built.place.0.join("other"));
    let library = kumi.with_file_name(LIBRARIES[1]);
    let mut bytes = fs::read(&library).expect("the library");
    // The version as the library has it, padded to 32 bytes.
    let mut version = [0; 32];
    let own = env!("CARGO_PKG_VERSION").as_bytes();
    version[..own.len()].copy_from_slice(own);
    let found = bytes.windows(32).position(|part| part == version);
    let at = found.expect("the library has its version");
    bytes[at] = b'9';
    fs::write(&library, &bytes).expect("it can be changed");
    runs_plainly(test, &built, &kumi, "is of version 9");
    fs::write(&library, "no library").expect("it can be changed");
    runs_plainly(test, &built, &kumi, "is no library of kumi run");
}

#[test]
fn missing_libraries_are_named() {
    let test = "command::missing_libraries_are_named";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let kumi = install(&built.place.0.join("part"));
    fs::remove_file(kumi.with_file_name(LIBRARIES[0])).expect("it is there");
    runs_plainly(test, &built, &kumi, &format!("{} is missing beside ", LIBRARIES[0]));
    fs::remove_file(kumi.with_file_name(LIBRARIES[1])).expect("it is there");
    runs_plainly(test, &built, &kumi, &format!("{} is neither in ", LIBRARIES[1]));
}

/// The dynamic linker has no way to quote what separates names.
#[test]
fn path_that_cannot_be_preloaded_is_refused() {
    let test = "command::path_that_cannot_be_preloaded_is_refused";
    let Some(built) = Built::new(test, "shell.c") else { return };
    for name in ["a b", "a:b"] {
        let kumi = install(&built.place.0.join(name));
        runs_plainly(test, &built, &kumi, "has a space or a colon");
    }
}

/// By the script that `make install` and the Debian package use.
#[test]
fn installed_libraries_are_found() {
    let test = "command::installed_libraries_are_found";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let prefix = built.place.0.join("usr");
    let mut install = Command::new(kumihimo_tests::root().join("scripts/install"));
    let ended = run(test, install.arg(&prefix).arg("kumi").env("LIBRARIES", folder()));
    assert!(ended.status.success(), "{}", ended.told());
    let mut command = Command::new(prefix.join("bin/kumi"));
    built.prepare(&mut command);
    let ended = run(test, command.args(["run", "--strict"]).arg(&built.program).arg(SEEN));
    let libraries =
        LIBRARIES.map(|name| format!("{}/bin/../lib/kumihimo/{name}", prefix.display()));
    let wanted = format!("preload {}\n", libraries.join(":"));
    assert!(ended.stdout.ends_with(&wanted), "{}", ended.told());
    assert_eq!(threads(&ended), Some((1, 1)), "{}", ended.told());
    for name in ["run", "doctor"] {
        assert!(prefix.join(format!("share/man/man1/kumi-{name}.1")).is_file(), "{name}");
    }
}

/// Where the limits leave no room for the runtime, the program runs as it would have.
#[test]
fn low_limits_leave_the_program_its_threads() {
    let test = "command::low_limits_leave_the_program_its_threads";
    let Some(built) = Built::new(test, "shell.c") else { return };
    for limit in ["-n 16", "-n 40", "-v 100000", "-v 250000", "-v 1000000"] {
        let mut command = Command::new("sh");
        built.prepare(&mut command);
        command.arg("-c").arg(format!("ulimit {limit} && exec \"$@\"")).arg("sh");
        command.args([KUMI, "run"]).arg(&built.program).args(["word", "!exit 3"]);
        let ended = run(test, &mut command);
        assert_eq!(ended.status.code(), Some(3), "{limit}: {}", ended.told());
        assert_eq!(ended.stdout, "word\n", "{limit}: {}", ended.told());
    }
}

/// The event source that the environment requests refuses a process without root's rights.
#[test]
fn refused_event_source_is_replaced_by_another() {
    let test = "command::refused_event_source_is_replaced_by_another";
    let Some(built) = Built::new(test, "given_up.c") else { return };
    let ended = run(test, built.by_kumi(&["--strict"]).env("KUMI_EVENTS", "bpf"));
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(0), "ok\n"), "{}", ended.told());
    let other = ["perf", "watch"].map(|source| format!("event source {source} is used\n"));
    assert!(other.iter().any(|line| ended.stderr.contains(line)), "{}", ended.told());
    assert_eq!(threads(&ended), Some((1, 1)), "{}", ended.told());
}

#[test]
fn unusable_runtime_directory_stops_no_program() {
    let test = "command::unusable_runtime_directory_stops_no_program";
    if !is_able(test) {
        return;
    }
    let Some(built) = Built::new(test, "shell.c") else { return };
    for place in ["/proc/nowhere", "off"] {
        let mut command = built.by_kumi(&["--strict"]);
        let ended = run(test, command.arg("word").env("KUMI_DIR", place));
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(0), "word\n"), "{}", ended.told());
        assert_eq!(threads(&ended), Some((1, 1)), "{}", ended.told());
    }
}
