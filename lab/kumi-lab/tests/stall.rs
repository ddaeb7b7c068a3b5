//! `stall` in small, with both sides as processes, for every kind. The tests check that the work
//! was done, not times.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const KUMI: &str = env!("CARGO_BIN_EXE_kumi-lab");
const REQUESTS: usize = 400;

struct Outside {
    child: Child,
    directory: PathBuf,
}

impl Outside {
    /// Starts the peer of one run. Returns it with its first line.
    fn start(kind: &str) -> (Outside, String) {
        let directory = PathBuf::from("/var/tmp")
            .join(format!("kumi-stall-test-{}-{kind}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let mut command = Command::new(KUMI);
        command.arg("bench-outside").arg(&directory).args([kind, "4000", &REQUESTS.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("kumi");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut said).expect("a line");
        (Outside { child, directory }, said)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let ended = self.child.wait();
        let removed = std::fs::remove_dir_all(&self.directory);
        if !std::thread::panicking() {
            assert!(ended.expect("our child").success());
            removed.expect("nothing is mounted there any more");
        }
    }
}

/// Rows of Kumihimo's contender for one kind; `None` if this machine refuses it.
fn rows(kind: &str, events: &str) -> Option<String> {
    let (outside, said) = Outside::start(kind);
    if said.starts_with("refused: ") {
        println!("{kind}: {said}");
        return None;
    }
    assert!(said.starts_with("ready "), "{kind}: {said}");
    let mut command = Command::new(KUMI);
    command.args([
        "bench-child",
        "--variant",
        "full",
        "--queue",
        "ring",
        "stall",
        "--vps",
        "2",
        "ms=100",
        "warm=40",
    ]);
    command.args([
        format!("stall={kind}"),
        format!("events={events}"),
        format!("count={REQUESTS}"),
    ]);
    command.arg(format!("dir={}", outside.directory.display())).env("KUMI_EVENTS", events);
    let output = command.output().expect("kumi");
    assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

fn note(row: &str, name: &str) -> f64 {
    let word = row.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix(":="));
    word.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {row:?}"))
}

#[test]
fn every_kind_stalls_and_every_request_is_served() {
    for (kind, events) in [
        ("none", "off"),
        ("read", "off"),
        ("blocking", "off"),
        ("flock", "watch"),
        ("fuse", "watch"),
        ("fault", "watch"),
        ("loop", "watch"),
    ] {
        let Some(rows) = rows(kind, events) else { continue };
        let metrics: Vec<_> = rows.lines().filter_map(|row| row.split(' ').next()).collect();
        assert_eq!(metrics, ["p50", "p99", "p999"], "{kind}");
        let stalls = note(rows.lines().next().expect("a row"), "stalls");
        assert_eq!(stalls > 0.0, kind != "none", "{kind}: {rows}");
    }
}

#[test]
fn unknown_event_source_is_an_error() {
    let mut command = Command::new(KUMI);
    command.args([
        "bench-child",
        "--variant",
        "full",
        "--queue",
        "ring",
        "events",
        "part=wakes",
        "events=none-such",
    ]);
    let output = command.output().expect("kumi");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    // `refused: ` marks features that this machine lacks.
    assert!(
        said.contains("none-such: unknown event source") && !said.contains("refused: "),
        "{said}"
    );
}
