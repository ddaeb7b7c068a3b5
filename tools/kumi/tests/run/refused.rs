//! Programs whose threads cannot be microprocesses: each runs as it would have, after a line that
//! says why; with `--strict` it does not run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use kumihimo_tests::skip;

use crate::bed::{Built, KUMI, copy_program, run, write_program};

/// Checks what `kumi run`, `kumi run --strict` and `kumi doctor --run` do with the program, which
/// ends as it does without them.
fn is_refused(test: &str, built: &Built, why: &str) {
    let name = built.program.display();
    let ended = run(test, &mut built.by_kumi(&[]));
    // env(1) starts a program by execvp(3), which has the shell read a file of unknown format.
    let mut env = Command::new("env");
    built.prepare(&mut env);
    let plain = run(test, env.arg(&built.program));
    assert_eq!(ended.status, plain.status, "{}", ended.told());
    assert_eq!(ended.stdout, plain.stdout, "{}", ended.told());
    let first = ended.stderr.lines().next().unwrap_or_default();
    assert_eq!(first, format!("kumi run: {name}: {why}; it runs on kernel threads"));
    let ended = run(test, &mut built.by_kumi(&["--strict"]));
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(125), ""), "{}", ended.told());
    let wanted = format!("kumi run: {name}: {why}; --strict allows no kernel threads\n");
    assert_eq!(ended.stderr, wanted);
    let mut doctor = Command::new(KUMI);
    let ended = run(test, doctor.args(["doctor", "--run"]).arg(&built.program));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.told());
    assert!(ended.stdout.contains(&format!("kernel threads: {why}\n")), "{}", ended.told());
}

#[test]
fn static_program_runs_plainly() {
    let test = "refused::static_program_runs_plainly";
    let Some(built) = Built::with(test, "shell.c", &["-static"]) else { return };
    let why = "it is linked statically: no dynamic linker preloads anything";
    is_refused(test, &built, why);
}

#[test]
fn program_of_go_runs_plainly() {
    let test = "refused::program_of_go_runs_plainly";
    let Some(built) = Built::new(test, "go_like.c") else { return };
    let why = "it is written in Go, whose goroutines make system calls without the C library";
    is_refused(test, &built, why);
}

/// The command is such a program itself.
#[test]
fn program_with_a_runtime_of_its_own_is_named() {
    let test = "refused::program_with_a_runtime_of_its_own_is_named";
    let Some(mut built) = Built::new(test, "shell.c") else { return };
    built.program = KUMI.into();
    is_refused(test, &built, "it is written for Kumihimo, and has a runtime of its own");
}

#[test]
fn program_with_the_c_library_of_kumihimo_is_named() {
    let test = "refused::program_with_the_c_library_of_kumihimo_is_named";
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libkumihimo_c.so.0"];
    let Some(library) = Built::with(&format!("{test}-library"), "go_like.c", &flags) else {
        return;
    };
    let path = library.program.to_str().expect("text");
    let flags = ["-Wl,--no-as-needed", path, "-Wl,-rpath,$ORIGIN"];
    let Some(built) = Built::with(test, "shell.c", &flags) else { return };
    fs::rename(path, built.place.0.join("libkumihimo_c.so.0")).expect("room");
    let why = "it uses libkumihimo_c.so, which has a runtime of its own";
    is_refused(test, &built, why);
}

#[test]
fn program_with_the_functions_in_it_is_refused() {
    let test = "refused::program_with_the_functions_in_it_is_refused";
    let Some(built) = Built::new(test, "interposed_like.c") else { return };
    let ended = run(test, &mut built.by_kumi(&[]));
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(125), ""), "{}", ended.told());
    let why = "it has kumihimo::interpose!() in it: run it without `kumi run`\n";
    assert!(ended.stderr.ends_with(why), "{}", ended.told());
    let mut doctor = Command::new(KUMI);
    let ended = run(test, doctor.args(["doctor", "--run"]).arg(&built.program));
    assert!(ended.stdout.contains("microprocesses: it has"), "{}", ended.told());
}

#[test]
fn program_with_thread_sanitizer_runs_plainly() {
    let test = "refused::program_with_thread_sanitizer_runs_plainly";
    let Some(built) = Built::new(test, "tsan_like.c") else { return };
    let why =
        "it is built with ThreadSanitizer, which keeps a state of its own of each kernel thread";
    is_refused(test, &built, why);
}

/// The other library's dynamic linker is not here, so the kernel refuses the program afterwards.
#[test]
fn program_of_another_c_library_is_named() {
    const OWN: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
    const OTHER: &[u8] = b"/lib/ld-musl-x86_64.so.1\0";
    let test = "refused::program_of_another_c_library_is_named";
    let linker = std::str::from_utf8(&OTHER[..OTHER.len() - 1]).expect("text");
    if Path::new(linker).exists() {
        return skip(test, "this machine has musl's dynamic linker");
    }
    let Some(built) = Built::new(test, "shell.c") else { return };
    let mut bytes = fs::read(&built.program).expect("the program");
    let found = bytes.windows(OWN.len()).position(|part| part == OWN);
    let at = found.expect("the program names its dynamic linker");
    bytes[at..at + OTHER.len()].copy_from_slice(OTHER);
    write_program(&built.program, &bytes);
    let why = format!("its C library is not glibc: its dynamic linker is {linker}");
    is_refused(test, &built, &why);
}

#[test]
fn program_of_another_architecture_is_named() {
    /// Place of `e_machine`, and `EM_AARCH64` (elf(5)).
    const AT: usize = 18;
    const MACHINE: u8 = 183;
    let test = "refused::program_of_another_architecture_is_named";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let mut bytes = fs::read(&built.program).expect("the program");
    bytes[AT] = MACHINE;
    write_program(&built.program, &bytes);
    is_refused(test, &built, "it is for Aarch64, not x86_64");
}

#[test]
fn program_with_rights_of_its_own_runs_plainly() {
    /// `nobody`.
    const OTHER: u32 = 65534;
    let test = "refused::program_with_rights_of_its_own_runs_plainly";
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip(test, "only root can give a file to another user");
    }
    let Some(built) = Built::new(test, "shell.c") else { return };
    std::os::unix::fs::chown(&built.program, Some(OTHER), Some(OTHER)).expect("root may");
    for (mode, what) in [(0o4755, "set-user-ID"), (0o2755, "set-group-ID")] {
        fs::set_permissions(&built.program, PermissionsExt::from_mode(mode)).expect("its mode");
        let why = format!("it is {what}, and the dynamic linker then preloads nothing");
        is_refused(test, &built, &why);
    }
}

/// A child that the program executes may have such rights. It runs as it would have.
#[test]
fn child_with_rights_of_its_own_runs_plainly() {
    let test = "refused::child_with_rights_of_its_own_runs_plainly";
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip(test, "only root can give a file to another user");
    }
    let Some(built) = Built::new(test, "shell.c") else { return };
    let child = built.place.0.join("child");
    copy_program(&built.program, &child);
    std::os::unix::fs::chown(&child, Some(65534), None).expect("root may");
    fs::set_permissions(&child, PermissionsExt::from_mode(0o4755)).expect("its mode");
    let inner = format!("!{} word '!exit 4'", child.display());
    let ended = run(test, built.by_kumi(&["--strict"]).arg(inner));
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(4), "word\n"), "{}", ended.told());
    assert_eq!(ended.stderr, "kumi run: 1 of 1 threads were microprocesses\n");
}
