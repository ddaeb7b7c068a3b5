//! Tests of the command `kumi trace`: exit codes, messages, and files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kumihimo::runtime::Runtime;
use kumihimo::thread;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("kumi-trace-command-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const KUMI: &str = env!("CARGO_BIN_EXE_kumi");

fn kumi(folder: &Folder, args: &[&str]) -> (Output, String) {
    let output =
        Command::new(KUMI).arg("trace").args(args).current_dir(&folder.0).output().expect("kumi");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    (output, said)
}

const TRACED: &str = "traced_program";

/// Runs `kumi trace ARGS` on this test program, which runs the test [`TRACED`] as a child.
fn trace_program(folder: &Folder, args: &[&str]) -> (Output, String) {
    let child = format!("KUMI_TEST_CHILD={TRACED}");
    let own = std::env::current_exe().expect("this program");
    let own = own.to_str().expect("a path in UTF-8");
    let program = ["env", &child, own, "--exact", TRACED, "--nocapture", "--test-threads=1"];
    kumi(folder, &[args, &program].concat())
}

/// Many microprocesses that yield, on two virtual processors. Does nothing unless it runs as the
/// traced child.
#[test]
fn traced_program() {
    if !kumihimo_tests::process::is_child(TRACED) {
        return;
    }
    let runtime = Runtime::builder().vps(2).build().expect("a runtime");
    runtime.run(|| {
        let yields = || (0..50).for_each(|_| thread::yield_now());
        let all: Vec<_> = (0..100).map(|_| thread::spawn(yields)).collect();
        all.into_iter().for_each(|one| one.join().expect("no panic"));
    });
}

fn one_to_one() -> bool {
    // Only one runtime can exist at a time.
    static ONCE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let skip = *ONCE.get_or_init(kumihimo_tests::process::is_one_to_one);
    if skip {
        kumihimo_tests::skip(
            "kumi trace",
            "microprocesses are kernel threads here, and nothing is traced",
        );
    }
    skip
}

#[test]
fn traced_program_passes_the_check() {
    if one_to_one() {
        return;
    }
    let folder = Folder::new("checked");
    let (output, said) = trace_program(&folder, &["-o", "out", "--buffer", "1000000"]);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(" 0 lost") && said.contains("https://ui.perfetto.dev"), "{said}");
    let (output, said) = kumi(&folder, &["check", "out"]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("none overlap") && said.ends_with("holds\n"), "{said}");
}

#[test]
fn unrelated_traces_are_refused() {
    if one_to_one() {
        return;
    }
    let folder = Folder::new("together");
    for file in ["a", "b"] {
        let args = ["-o", file, "--buffer", "1000000", "env", "KUMI_ARBITER=off"];
        let (output, said) = trace_program(&folder, &args);
        assert!(output.status.success(), "{said}");
    }
    let (output, said) = kumi(&folder, &["check", "a", "b"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("a: its process requested no core") && said.contains("KUMI_ARBITER=off"),
        "{said}"
    );
}

#[test]
fn lost_records_are_reported_and_prove_nothing() {
    if one_to_one() {
        return;
    }
    let folder = Folder::new("lost");
    let (output, said) = trace_program(&folder, &["-o", "out", "--buffer", "8"]);
    assert!(output.status.success() && said.contains("a larger --buffer"), "{said}");
    let (output, said) = kumi(&folder, &["check", "out"]);
    assert_eq!(output.status.code(), Some(2), "{said}");
}

#[test]
fn trace_exits_with_the_programs_code() {
    let folder = Folder::new("code");
    for (script, code) in [("exit 3", 3), ("kill -KILL $$", 137)] {
        let (output, said) = kumi(&folder, &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("the program started no runtime"), "{said}");
    }
    // If the program succeeds, a missing trace is an error.
    let (output, said) = kumi(&folder, &["true"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn invalid_options_are_reported_before_the_program_runs() {
    let folder = Folder::new("refused");
    for (args, why) in [
        (["-o", "/no/such/folder/x", "touch", "ran"], "/no/such/folder/x"),
        (["--buffer", "1", "touch", "ran"], "--buffer 1"),
        (["-o", "x", "./no-such-program", "ran"], "no-such-program"),
    ] {
        let (output, said) = kumi(&folder, &args);
        assert!(!output.status.success() && said.contains(why), "{said}");
        assert!(!Path::new(&folder.0).join("ran").exists());
    }
    std::fs::write(folder.0.join("text"), "no trace").expect("room");
    let (output, said) = kumi(&folder, &["check", "text"]);
    assert!(output.status.code() == Some(1) && said.contains("not a complete trace"), "{said}");
}
