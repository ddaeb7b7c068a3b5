//! `echo` and `priority-io` in small, with servers and load generators as processes. The tests
//! check that the work was done, not times.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const KUMI: &str = env!("CARGO_BIN_EXE_kumi-lab");

/// A server or a load generator, which ends with its standard input.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Program { child, output }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// The load generator's reply for a slice of `ms` milliseconds.
    fn ask(&mut self, ms: u64) -> Vec<f64> {
        writeln!(self.child.stdin.as_mut().expect("open"), "{ms}").expect("a listening socket");
        self.hear().split(' ').map(|word| word.parse().expect("a number")).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let ended = self.child.wait().expect("our child");
        if !std::thread::panicking() {
            assert!(ended.success());
        }
    }
}

fn ports(server: &mut Program) -> Vec<String> {
    let said = server.hear();
    let ports = said.strip_prefix("listening ").unwrap_or_else(|| panic!("{said:?}"));
    ports.split(' ').map(str::to_owned).collect()
}

fn ours(bench: &str, arg: &str) -> Program {
    Program::start(Command::new(KUMI).args([
        "bench-child",
        "--variant",
        "full",
        "--queue",
        "ring",
        bench,
        arg,
    ]))
}

#[test]
fn every_reply_is_counted() {
    let mut server = ours("echo", "batch=adaptive");
    let mut load =
        Program::start(Command::new(KUMI).args(["bench-load", &ports(&mut server)[0], "30"]));
    assert_eq!(load.hear(), "ready");
    // One request over each connection.
    assert_eq!((load.ask(0)[0], load.ask(0)[5]), (0.0, 30.0));
    let slice = load.ask(20);
    assert_eq!(slice[5], slice[0] + 30.0);
    drop(load);
}

#[test]
fn both_priorities_are_served() {
    for priorities in ["priorities=on", "priorities=off"] {
        let mut server = ours("priority-io", priorities);
        let ports = ports(&mut server);
        let mut load = Command::new(KUMI);
        let mut load =
            Program::start(load.args(["bench-priority-load", &ports[0], "20", &ports[1], "3"]));
        assert_eq!(load.hear(), "ready");
        let [_, seconds, timed, p50, p99] = load.ask(25)[..] else { panic!("five numbers") };
        assert_eq!((seconds, timed), (0.025, 25.0));
        assert!(p50 > 0.0 && p99 >= p50);
        drop(load);
    }
}

/// The floor, built like in the benchmark.
#[test]
fn floor_echoes() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rivals/floor");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rival-floor");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    assert!(
        cc.args(["main.c", "epoll.c", "uring.c"])
            .current_dir(source)
            .status()
            .expect("cc")
            .success()
    );
    for calls in ["calls=epoll", "calls=uring"] {
        let mut server = Program::start(Command::new(&program).args(["echo", calls, "--vps", "1"]));
        let said = server.hear();
        if said.starts_with("refused: ") {
            kumihimo_tests::skip("floor_echoes", &format!("{calls}: {said}"));
            // The program has ended with an error.
            server.child.wait().expect("our child");
            std::mem::forget(server);
            continue;
        }
        let port = said.strip_prefix("listening ").unwrap_or_else(|| panic!("{said:?}"));
        let mut load = Program::start(Command::new(KUMI).args(["bench-load", port, "30"]));
        assert_eq!(load.hear(), "ready");
        assert!(load.ask(20)[5] >= 30.0);
        drop(load);
    }
}
