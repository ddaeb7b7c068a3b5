//! The load generator of `servers`, controlled line by line, on files of the host and on the
//! mounted clock.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const KUMI: &str = env!("CARGO_BIN_EXE_kumi-lab");

/// A program that exchanges lines, ended when dropped.
struct Told {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Told {
    fn start(args: &[&Path]) -> Told {
        let mut command = Command::new(KUMI);
        let mut child =
            command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Told { child, input, output }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.hear()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("kumi-files-{name}-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    place
}

#[test]
fn failed_commands_are_reported_and_the_rest_runs() {
    let place = place("load");
    fs::create_dir_all(place.join("made/0")).unwrap();
    let mut load = Told::start(&["bench-files".as_ref(), &place, &place]);
    assert_eq!(load.hear(), "ready");
    for (line, word) in [
        ("fileread 10 1", "big"),
        ("time 10", "now"),
        ("stat 1 10", "small"),
        ("dance", "unknown command"),
        ("create x 10", "number"),
    ] {
        let said = load.ask(line);
        assert!(said.starts_with("failed: ") && said.contains(word), "{line}: {said}");
    }
    let said = load.ask("create 1 20");
    assert!(said.contains("ops=") && said.contains("p99="), "{said}");
    drop(load);
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn each_question_to_the_mounted_clock_is_a_request() {
    if fs::File::options().read(true).write(true).open("/dev/fuse").is_err()
        || !rustix::process::geteuid().is_root()
    {
        kumihimo_tests::skip(
            "each_question_to_the_mounted_clock_is_a_request",
            "needs root and /dev/fuse",
        );
        return;
    }
    let place = place("clock");
    let mut clock = Told::start(&["serve".as_ref(), "clock".as_ref(), "--mount".as_ref(), &place]);
    let said = clock.hear();
    assert!(said.starts_with("mounted"), "{said}");
    let mut load = Told::start(&["bench-files".as_ref(), &place, &place]);
    assert_eq!(load.hear(), "ready");
    assert_eq!(load.ask("time 500"), "ready=1");
    let said = load.ask("go");
    assert!(said.starts_with("ms="), "{said}");
    drop(load);
    drop(clock);
    fs::remove_dir(place).unwrap();
}
