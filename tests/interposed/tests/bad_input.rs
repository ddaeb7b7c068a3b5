//! Bad input of `kumihimo::interpose!` and `#[kumihimo::main]`: one clear message each.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const EXITS: &str = env!("CARGO_BIN_EXE_exits");
const RAW_CALLS: &str = env!("CARGO_BIN_EXE_raw_calls");

/// Has Cargo compile one program of this package, which fails. Returns what it says.
fn compile(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--features", "bad-input"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?} compiles");
    said
}

#[test]
fn second_use_does_not_compile() {
    let said = compile(&["--bin", "twice"]);
    assert!(
        said.contains("the name `kumihimo_interpose_is_used_once` is defined multiple times"),
        "{said}"
    );
    let said = compile(&["--bin", "twice_in_modules"]);
    assert!(
        said.contains("symbol `KUMIHIMO_INTERPOSE_IS_USED_MORE_THAN_ONCE` is already defined"),
        "{said}"
    );
}

#[test]
fn library_does_not_compile() {
    let said = compile(&["--example", "in_a_library"]);
    assert!(said.contains("kumihimo::interpose!() belongs in the program"), "{said}");
}

#[test]
fn static_program_does_not_compile() {
    let said = compile(&["--bin", "exits", "--", "-Ctarget-feature=+crt-static"]);
    assert!(said.contains("kumihimo::interpose!() needs a dynamic C library"), "{said}");
}

#[test]
fn attribute_refuses_arguments_and_other_functions() {
    let said = compile(&["--bin", "attributes"]);
    for message in
        ["takes no arguments", "is for a plain function", "is for `fn main()` without parameters"]
    {
        assert!(said.contains(message), "{said}");
    }
}

/// Compiles a shared library of this text, to be preloaded.
fn library(name: &str, text: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, made) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&source, text).expect("a temporary folder");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&made).arg(source);
    assert!(compiler.status().expect("cc").success());
    made
}

#[test]
fn kumi_run_of_such_a_program_is_refused() {
    let made = library("as_kumi_run", "char KUMIHIMO_INTERPOSE_VERSION[32] = \"0\";");
    let output = Command::new(EXITS).arg("code").env("LD_PRELOAD", made).output().expect("begins");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "kumihimo: the program has kumihimo::interpose!() in it: run it without `kumi run`\n"
    );
}

#[test]
fn other_preloaded_library_is_reported_once() {
    let made = library(
        "other",
        "int nanosleep(void *a, void *b) { return 0; }\nint usleep(unsigned a) { return 0; }\n",
    );
    let output = Command::new(EXITS).arg("code").env("LD_PRELOAD", made).output().expect("begins");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("kumihimo: ") && said.contains("other.so"), "{said}");
}

#[test]
fn system_calls_without_the_c_library_are_reported_once() {
    let mut program = Command::new(RAW_CALLS)
        .arg("raw")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("begins");
    let mut said = BufReader::new(program.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    // It goes on until its input ends.
    drop(program.stdin.take());
    let (mut more, status) = (String::new(), program.wait().expect("ends"));
    said.read_to_string(&mut more).expect("text");
    assert!(status.success(), "{status}: {line}{more}");
    assert_eq!(more, "");
    let begin = format!("kumihimo: {RAW_CALLS} makes system calls without the C library (");
    assert!(line.starts_with(&begin), "{line}");
    // The place is that of the function which makes the call.
    let address = line.split(" at 0x").nth(1).and_then(|rest| rest.split(')').next());
    let address = format!("0x{}", address.expect("an address"));
    let place = Command::new("addr2line").args(["-fie", RAW_CALLS, &address]).output();
    if let Ok(place) = place {
        let place = String::from_utf8_lossy(&place.stdout).into_owned();
        assert!(place.contains("one_byte"), "{line}{place}");
    }
}

#[test]
fn unknown_waits_in_the_c_library_are_not_reported() {
    let output = Command::new(RAW_CALLS).arg("library").output().expect("begins");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
