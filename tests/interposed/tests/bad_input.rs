//! Bad input of `kumihimo::interpose!` and `#[kumihimo::main]`: one clear message each.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use kumihimo_tests::process::cargo;
use serde_json::Value;

const EXITS: &str = env!("CARGO_BIN_EXE_exits");
const RAW_CALLS: &str = env!("CARGO_BIN_EXE_raw_calls");

/// The crate as cargo built it for these tests.
///
/// Cargo builds it anew for another choice of packages, with other features of what it depends on.
/// A runner of tests tells its choice in `KUMI_TEST_PACKAGES`.
fn kumihimo() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let packages = std::env::var("KUMI_TEST_PACKAGES");
        let packages = packages.unwrap_or_else(|_| format!("--package {}", env!("CARGO_PKG_NAME")));
        let output = cargo()
            .args(["test", "--no-run", "--quiet", "--message-format=json"])
            .args(packages.split(' '))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let messages = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let of_the_crate = |message: &Value| {
            message["target"]["name"] == "kumihimo" && message["profile"]["test"] == false
        };
        let message = messages.map(|message| message.expect("JSON")).find(of_the_crate);
        let files = message.expect("the crate")["filenames"].clone();
        let files = files.as_array().expect("files").iter().filter_map(Value::as_str);
        // Beside those of the crates below. That of the folder above may be of another build.
        let metadata = files.map(Path::new).find(|file| file.extension() == Some("rmeta".as_ref()));
        metadata.expect("it is there").with_extension("rlib")
    })
}

/// Compiles a program, or a shared library if the arguments say so, which fails. Returns what the
/// compiler says.
fn compile(source: &str, arguments: &[&str]) -> String {
    let library = kumihimo();
    let folder = library.parent().expect("a folder");
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.replace('/', "-"));
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    // As cargo sets them.
    rustc.env("CARGO_CRATE_NAME", "bad_input");
    if !arguments.contains(&"cdylib") {
        rustc.env("CARGO_BIN_NAME", "bad_input");
    }
    let output = rustc
        .args(["--edition", "2024", "--crate-name", "bad_input"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .arg("--extern")
        .arg(format!("kumihimo={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", folder.display()))
        .arg("-o")
        .arg(made)
        .args(arguments)
        .output()
        .expect("rustc");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{source} compiles");
    said
}

#[test]
fn second_use_does_not_compile() {
    let said = compile("tests/bad_input/twice.rs", &[]);
    assert!(
        said.contains("the name `kumihimo_interpose_is_used_once` is defined multiple times"),
        "{said}"
    );
    let said = compile("tests/bad_input/twice_in_modules.rs", &[]);
    assert!(
        said.contains("symbol `KUMIHIMO_INTERPOSE_IS_USED_MORE_THAN_ONCE` is already defined"),
        "{said}"
    );
}

#[test]
fn library_does_not_compile() {
    let said = compile("tests/bad_input/in_a_library.rs", &["--crate-type", "cdylib"]);
    assert!(said.contains("kumihimo::interpose!() belongs in the program"), "{said}");
}

#[test]
fn static_program_does_not_compile() {
    let said = compile("src/bin/exits.rs", &["-Ctarget-feature=+crt-static"]);
    assert!(said.contains("kumihimo::interpose!() needs a dynamic C library"), "{said}");
}

#[test]
fn attribute_refuses_arguments_and_other_functions() {
    let said = compile("tests/bad_input/attributes.rs", &[]);
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
