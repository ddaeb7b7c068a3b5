//! Settings in the environment. Each case runs in a child process, because a process reads them
//! once.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kumihimo::gate::Gate;
use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_runtime::board;
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{Ended, again, alone, is_child, one_to_one};
use kumihimo_tests::{root, skip};

/// An unprivileged user and group.
const NOBODY: u32 = 65534;

fn well(ended: &Ended) {
    assert!(ended.status.success(), "{}", ended.told());
}

/// In the child: checks the error of `build`.
fn build_fails_as_expected() {
    let error = Runtime::builder().vps(1).build().expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), std::env::var("KUMI_TEST_EXPECT").expect("it is set"));
}

#[test]
fn bad_value_is_an_error_of_build() {
    const NAME: &str = "bad_value_is_an_error_of_build";
    if is_child(NAME) {
        return build_fails_as_expected();
    }
    for (name, value) in [
        ("KUMI_VPS", "0"),
        ("KUMI_EVENTS", "ptrace"),
        ("KUMI_PREEMPT", "signal=9"),
        ("KUMI_KERNEL_THREADS", "many"),
        ("KUMI_STACK", "2g"),
        ("KUMI_DIR", "relative"),
        ("KUMI_ARBITER", "relative"),
        ("KUMI_SHARE", "half"),
        ("KUMI_WATCHDOG", "end=99"),
        ("KUMI_DUMP_SIGNAL", "KILL"),
    ] {
        let setting = kumihimo_config::VARIABLES.iter().find(|setting| setting.name == name);
        let allowed = setting.expect("a setting").allowed;
        let expected = format!("{name}={value}: expected {allowed}");
        well(&again(NAME, &[(name, value), ("KUMI_TEST_EXPECT", &expected)]));
    }
    let expected = "KUMI_LAB=bpf=list: expected thread or switch for bpf";
    well(&again(NAME, &[("KUMI_LAB", "bpf=list"), ("KUMI_TEST_EXPECT", expected)]));
}

#[test]
fn old_name_is_an_error_of_build() {
    const NAME: &str = "old_name_is_an_error_of_build";
    if is_child(NAME) {
        return build_fails_as_expected();
    }
    // A row of the matrix has pairs of its own, which the replacement keeps.
    let lab = format!("KUMI_LAB={}", kumihimo_config::lab_with("batch=fixed:3"));
    for (old, value, new) in [
        ("KUMI_MACHINE", "off", "KUMI_DIR=off"),
        ("KUMI_BOARD", "off", "KUMI_ARBITER=none"),
        ("KUMI_BATCH", "fixed=3", &lab),
    ] {
        let expected = format!("{old}={value}: this variable was replaced, set {new} instead");
        well(&again(NAME, &[(old, value), ("KUMI_TEST_EXPECT", &expected)]));
    }
}

#[test]
fn bad_value_ends_an_implicit_start() {
    const NAME: &str = "bad_value_ends_an_implicit_start";
    if is_child(NAME) {
        match std::env::var("KUMI_TEST_PART").expect("it is set").as_str() {
            "spawn" => _ = thread::spawn(|| ()).join(),
            "builder" => _ = thread::Builder::new().spawn(|| ()),
            _ => _ = Gate::serve("unreachable", |n: u32| n),
        }
        println!("it goes on");
        return;
    }
    for part in ["spawn", "builder", "gate"] {
        let ended = again(NAME, &[("KUMI_VPS", "many"), ("KUMI_TEST_PART", part)]);
        assert_eq!(ended.status.code(), Some(101), "{}", ended.told());
        assert!(
            ended.stderr.contains("kumihimo: KUMI_VPS=many: expected a number of virtual")
                && !ended.stdout.contains("it goes on"),
            "{}",
            ended.told()
        );
    }
}

#[test]
fn builder_takes_precedence_over_the_environment() {
    const NAME: &str = "builder_takes_precedence_over_the_environment";
    if is_child(NAME) {
        let vps = || kumihimo::runtime::metrics().expect("it runs").vps.len();
        Runtime::builder().build().expect("a runtime").run(|| assert_eq!(vps(), 3));
        Runtime::builder().vps(2).build().expect("a runtime").run(|| assert_eq!(vps(), 2));
        return;
    }
    well(&again(NAME, &[("KUMI_VPS", "3")]));
}

/// Stack size of the calling microprocess in bytes, as reported by the C library.
fn own_stack() -> usize {
    // SAFETY: attributes that the call fills, destroyed afterwards.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes), 0);
        let (mut lowest, mut size) = (std::ptr::null_mut(), 0);
        let done =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut lowest, &raw mut size);
        assert_eq!(done, 0);
        libc::pthread_attr_destroy(&raw mut attributes);
        size
    }
}

/// As [`own_stack`], of a lean microprocess, which the C library does not know.
fn lean_stack() -> usize {
    let here = 0u8;
    let slot = kumihimo_arch::stack::locate((&raw const here).addr()).expect("a slot");
    slot.slot_end - slot.guard.end
}

#[test]
fn stack_size_is_that_of_the_environment() {
    const NAME: &str = "stack_size_is_that_of_the_environment";
    if is_child(NAME) {
        let expected: usize =
            std::env::var("KUMI_TEST_EXPECT").expect("given").parse().expect("a number");
        // A slot offers less than twice the size plus the guard and the block.
        let about = |size| (expected..expected * 2 + (512 << 10)).contains(&size);
        let of = |builder: kumihimo::runtime::Builder, lean| {
            builder.vps(1).build().expect("a runtime").run(|| {
                // SAFETY: the closure keeps nothing in thread-local storage.
                let builder = unsafe { thread::Builder::new().lean(lean) };
                let own = if lean && !one_to_one() { lean_stack } else { own_stack };
                builder.spawn(own).expect("it begins").join().expect("no panic")
            })
        };
        for lean in [false, true] {
            let size = of(Runtime::builder(), lean);
            assert!(about(size), "{size}, lean: {lean}");
            let size = of(Runtime::builder().stack_size(100 << 10), lean);
            assert!(!about(size) && size >= 100 << 10, "{size}, lean: {lean}");
        }
        return;
    }
    let stack = ("KUMI_STACK", "2m");
    let rust = ("RUST_MIN_STACK", "4194304");
    well(&again(NAME, &[stack, ("KUMI_TEST_EXPECT", "2097152")]));
    well(&again(NAME, &[rust, ("KUMI_TEST_EXPECT", "4194304")]));
    well(&again(NAME, &[stack, rust, ("KUMI_TEST_EXPECT", "2097152")]));
}

/// The TLS block takes a part of the largest slot.
#[test]
fn stack_that_no_slot_holds_is_an_error_that_names_the_variable() {
    const NAME: &str = "stack_that_no_slot_holds_is_an_error_that_names_the_variable";
    if is_child(NAME) {
        let error = Runtime::builder().vps(1).build().expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let variable = std::env::var("KUMI_TEST_EXPECT").expect("given");
        assert!(error.to_string().starts_with(&variable), "{error}");
        assert!(error.to_string().contains("the largest is "), "{error}");
        return;
    }
    let expect = |variable| ("KUMI_TEST_EXPECT", variable);
    well(&again(NAME, &[("KUMI_STACK", "1g"), expect("KUMI_STACK=1073741824: ")]));
    // std can have it for its own threads, of which libtest starts one.
    let huge = "2147483648";
    let named = format!("RUST_MIN_STACK={huge}: ");
    well(&again(NAME, &[("RUST_MIN_STACK", huge), expect(&named)]));
}

#[test]
fn dir_off_leaves_the_process_out_of_the_machine() {
    const NAME: &str = "dir_off_leaves_the_process_out_of_the_machine";
    const WHY: &str =
        "KUMI_DIR=off: this process uses no run-time directory; unset it, or name one";
    if is_child(NAME) {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            assert_eq!(kumihimo::machine::number(), Err(WHY.to_owned()));
            assert_eq!(thread::spawn(|| 7).join().expect("no panic"), 7);
            assert_eq!(board::alone(), Some(WHY));
        });
        let error = kumihimo::machine::Machine::mine().expect_err("none");
        assert_eq!(error.to_string(), WHY);
        return;
    }
    well(&again(NAME, &[("KUMI_DIR", "off"), ("KUMI_ARBITER", "on")]));
}

#[test]
fn arbiter_has_four_forms() {
    const NAME: &str = "arbiter_has_four_forms";
    if is_child(NAME) {
        return Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let at_a_board = board::seat().is_some();
            println!("found: {at_a_board} {} {:?}", board::arbitrates(), board::alone());
        });
    }
    let other = Place::new(&format!("{NAME}-other"));
    let elsewhere = other.0.join("board");
    let path = elsewhere.to_str().expect("text");
    for (arbiter, found, is_in_dir) in [
        ("on", "true true None", true),
        ("off", "true false None", true),
        ("none", "false false Some(\"KUMI_ARBITER=none\")", false),
        (path, "true true None", false),
    ] {
        let place = Place::new(NAME);
        let ended = again(NAME, &[("KUMI_DIR", place.path()), ("KUMI_ARBITER", arbiter)]);
        well(&ended);
        let expected = format!("found: {found}");
        assert!(ended.stdout.contains(&expected), "{arbiter}: {}", ended.told());
        assert_eq!(place.0.join("board").exists(), is_in_dir, "{arbiter}");
        assert_eq!(elsewhere.exists(), arbiter == path, "{arbiter}");
    }
}

#[test]
fn later_changes_of_the_environment_have_no_effect() {
    alone("later_changes_of_the_environment_have_no_effect", || {
        assert_eq!(kumihimo_config::check().map(|config| config.vps), Ok(None));
        // SAFETY: no other thread reads the environment in this process.
        unsafe { std::env::set_var("KUMI_VPS", "many") };
        assert_eq!(kumihimo_config::check().map(|config| config.vps), Ok(None));
    });
}

/// A copy of this program that another user can execute. Returns `None` after a skip was reported.
fn copy(name: &str, folder: &Place) -> Option<PathBuf> {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        skip(name, "only root can make a privileged program");
        return None;
    }
    let program = folder.0.join("program");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).expect("its mode");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("its mode");
    Some(program)
}

/// Runs the privileged copy of this program as user `uid` and checks that it ignores the
/// environment.
fn ignores_the_environment(name: &str, program: &Path, uid: u32) {
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("KUMI_TEST_CHILD", name)
        .env("KUMI_VPS", "many")
        .env("KUMI_BOARD", "off")
        .env("KUMI_DIR", "/proc/nowhere")
        .env("KUMI_LAB", "queue=steal")
        .env("RUST_MIN_STACK", "2147483648")
        .env("XDG_RUNTIME_DIR", "/proc/nowhere")
        .uid(uid)
        .output()
        .expect("the copy of this program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complaints) = (text(&output.stdout), text(&output.stderr));
    if said.contains("not privileged") {
        return skip(name, "the file system of temporary files is mounted nosuid");
    }
    assert!(output.status.success() && said.contains("ignored"), "{said}{complaints}");
}

/// In the child: checks that the environment is ignored.
fn is_ignored() {
    if !kumihimo_config::is_privileged() {
        return println!("not privileged");
    }
    assert_eq!(kumihimo_config::check(), Ok(&kumihimo_config::Config::default()));
    assert_eq!(kumihimo_config::trusted_variable("XDG_RUNTIME_DIR"), None);
    let lines = kumihimo_config::describe();
    assert!(lines.iter().all(|line| line.origin == kumihimo_config::Origin::Privileged));
    // The builder's own settings still apply: this one is refused after the environment was read.
    let error = Runtime::builder().vps(0).build().expect_err("none");
    assert!(error.to_string().starts_with("0 virtual processors"), "{error}");
    println!("ignored");
}

#[test]
fn privileged_program_ignores_the_environment() {
    const NAME: &str = "privileged_program_ignores_the_environment";
    if is_child(NAME) {
        return is_ignored();
    }
    let folder = Place::new(NAME);
    let Some(program) = copy(NAME, &folder) else { return };
    std::os::unix::fs::chown(&program, Some(NOBODY), None).expect("root may");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("its mode");
    ignores_the_environment(NAME, &program, 0);
}

/// Content of a file that only root may write.
const KEPT: &str = "only root may change this";

/// In the child: runs a traced program, if it is privileged or no caller's rights are at stake.
fn runs() {
    if !kumihimo_config::is_privileged() && std::env::var_os("KUMI_TEST_PLAIN").is_none() {
        return println!("not privileged");
    }
    Runtime::builder().vps(1).build().expect("a runtime").run(|| thread::spawn(|| {}).join()).ok();
    println!("ran");
}

/// Runs the copy of this program as `uid` with settings that name files of root. Returns what the
/// program wrote, and whether the file that only root may write and its folder are unchanged.
fn runs_with_roots_files(name: &str, program: &Path, uid: u32, plain: bool) -> (String, bool) {
    let kept = Place::new(&format!("{name}-kept"));
    let file = kept.0.join("file");
    std::fs::write(&file, KEPT).expect("a file of root");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("its mode");
    let mut command = Command::new(program);
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("KUMI_TEST_CHILD", name)
        .env("KUMI_TRACE", &file)
        .env("KUMI_DIR", &kept.0)
        .env("KUMI_ARBITER", kept.0.join("board"))
        .env("KUMI_DUMP_SIGNAL", "USR2")
        .env("XDG_RUNTIME_DIR", &kept.0)
        .env("TMPDIR", &kept.0)
        .gid(uid)
        .uid(uid);
    if plain {
        command.env("KUMI_TEST_PLAIN", "1");
    }
    let output = command.output().expect("the copy of this program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let names = std::fs::read_dir(&kept.0).expect("a folder").count();
    let is_kept = std::fs::read(&file).is_ok_and(|found| found == KEPT.as_bytes()) && names == 1;
    (text(&output.stdout) + &text(&output.stderr), is_kept)
}

#[test]
fn privileged_program_writes_no_file_of_its_callers_choice() {
    const NAME: &str = "privileged_program_writes_no_file_of_its_callers_choice";
    if is_child(NAME) {
        return runs();
    }
    let folder = Place::new(NAME);
    let Some(program) = copy(NAME, &folder) else { return };
    // The same program without privileges, run by root: the settings do have this effect.
    let (said, is_kept) = runs_with_roots_files(NAME, &program, 0, true);
    assert!(said.contains("ran") && !is_kept, "{said}");
    // Set-user-id and set-group-id.
    for mode in [0o4755, 0o2755] {
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).expect("its mode");
        let (said, is_kept) = runs_with_roots_files(NAME, &program, NOBODY, false);
        if said.contains("not privileged") {
            return skip(NAME, "the file system of temporary files is mounted nosuid");
        }
        assert!(said.contains("ran") && is_kept, "{mode:o}: {said}");
    }
}

#[test]
fn program_with_file_capabilities_ignores_the_environment() {
    const NAME: &str = "program_with_file_capabilities_ignores_the_environment";
    if is_child(NAME) {
        return is_ignored();
    }
    let folder = Place::new(NAME);
    let Some(program) = copy(NAME, &folder) else { return };
    // struct vfs_cap_data: revision 2 with the effective bit, then permitted and inheritable of the
    // first 32 and of the other capabilities (linux/capability.h). CAP_NET_BIND_SERVICE is bit 10.
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(program.to_str().expect("text")).expect("no NUL");
    // SAFETY: terminated strings and a live buffer of the given length.
    let done = unsafe {
        let name = c"security.capability".as_ptr();
        libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), value.len(), 0)
    };
    if done != 0 {
        let error = std::io::Error::last_os_error();
        return skip(NAME, &format!("setxattr of security.capability: {error}"));
    }
    ignores_the_environment(NAME, &program, NOBODY);
}

/// Files of the repository that may name variables: sources, scripts and documents.
fn texts(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Build results, foreign sources, or history.
        if ["target", ".git", "results", "rivals", "CHANGELOG.md"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            texts(&path, all);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            all.push((path, text));
        }
    }
}

/// All names beginning with `KUMI_` in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let begins = text.match_indices("KUMI_").map(|(at, _)| at);
    let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    begins
        .filter(|at| !text[..*at].ends_with(is_of_name))
        .map(|at| text[at..].split(|c| !is_of_name(c)).next().unwrap_or_default())
        .filter(|name| name.len() > "KUMI_".len())
        .collect()
}

/// A symbol of the library that `kumi run` preloads, and no variable.
const SYMBOL: &str = "KUMI_INTERPOSE_VERSION";

#[test]
fn no_variable_is_outside_of_the_table() {
    let accepted: BTreeSet<_> = kumihimo_config::VARIABLES.iter().map(|s| s.name).collect();
    assert_eq!(accepted.len(), 12);
    let headers = root().join("crates/capi/include/kumihimo");
    let headers = std::fs::read_dir(headers).expect("the C headers").flatten();
    let headers: Vec<_> =
        headers.map(|entry| std::fs::read_to_string(entry.path()).expect("readable")).collect();
    let macros: BTreeSet<_> = headers.iter().flat_map(|header| names(header)).collect();
    let mut all = Vec::new();
    texts(&root(), &mut all);
    assert!(all.len() > 500, "{}", all.len());
    let mut unknown = Vec::new();
    let mut reads = Vec::new();
    for (path, text) in &all {
        let path = path.strip_prefix(root()).expect("within").to_str().expect("text");
        // The table and its tests, this test, and code that handles foreign names.
        let knows_others = path.starts_with("crates/config/")
            || ["tests/tests/settings.rs", "tools/kumi/tests/doctor.rs"].contains(&path)
            || path == "docs/src/reference/bad-input/settings.md";
        if knows_others {
            continue;
        }
        let is_known = |name: &str| {
            accepted.contains(name)
                || macros.contains(name)
                || kumihimo_config::is_test_variable(name)
                || name == SYMBOL
        };
        // `KUMI_TEST_` and similar are families of names.
        let own = names(text).into_iter().filter(|name| !is_known(name) && !name.ends_with('_'));
        unknown.extend(own.map(|name| format!("{path}: {name}")));
        let is_test = path.split('/').any(|part| part.contains("test"));
        for name in accepted.iter().filter(|_| !is_test) {
            for read in [r#"::var(""#, r#"::var_os(""#, r#"getenv(""#] {
                if text.contains(&format!("{read}{name}\"")) {
                    reads.push(format!("{path}: {name}"));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "neither a setting nor a variable of tests: {unknown:#?}");
    assert!(reads.is_empty(), "read outside of crates/config: {reads:#?}");
}
