//! `rpc` and `priority` in small, with Kumihimo's sides as processes. The tests check that the work
//! was done, not times. (The rivals' test is in lab/rivals/rpc.)

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const KUMI: &str = env!("CARGO_BIN_EXE_kumi-lab");

/// A directory for both sides that contains their run-time directory.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path =
            std::env::temp_dir().join(format!("kumi-rpc-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it was made");
    }
}

struct Side {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Side {
    fn start(bench: &str, place: &Path, args: &[&str]) -> Side {
        let mut command = Command::new(KUMI);
        command.args(["bench-child", "--variant", "full", "--queue", "ring", bench]).args(args);
        command.arg(format!("place={}", place.display())).env("KUMI_DIR", place.join("machine"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("kumi");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Side { child, output }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn ask(&mut self, ms: u32) -> String {
        writeln!(self.child.stdin.as_mut().expect("open"), "{ms}").expect("a listening socket");
        self.hear()
    }

    fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().expect("our child").success()
    }
}

/// Starts a server and its client; `None` if gates are unavailable.
fn both(test: &str, place: &Place, args: &[&str], of_client: &[&str]) -> Option<(Side, Side)> {
    let mut server = Side::start("rpc", &place.0, &[args, &["side=server"]].concat());
    let said = server.hear();
    if said.starts_with("refused: ") {
        kumihimo_tests::skip(test, &said);
        server.end();
        return None;
    }
    assert_eq!(said, "ready");
    let mut client = Side::start("rpc", &place.0, &[args, of_client, &["side=client"]].concat());
    assert_eq!(client.hear(), "ready");
    Some((server, client))
}

#[test]
fn every_caller_is_answered() {
    for (placement, callers, bytes, by) in [
        ("adaptive", 1, 64, "copy"),
        ("adaptive", 20, 4096, "copy"),
        ("adaptive", 2, 1 << 20, "region"),
        ("handoff", 1, 64, "copy"),
        ("scheduled", 3, 64, "copy"),
        ("spin", 1, 64, "copy"),
    ] {
        let place = Place::new(&format!("{placement}-{callers}"));
        let args = [
            format!("placement={placement}"),
            format!("callers={callers}"),
            format!("bytes={bytes}"),
            format!("by={by}"),
            "--vps".to_owned(),
            "2".to_owned(),
        ];
        let Some((server, mut client)) =
            both("every_caller_is_answered", &place, &args.each_ref().map(String::as_str), &[])
        else {
            return;
        };
        for _ in 0..2 {
            let said = client.ask(20);
            let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
            assert!(numbers.len() == 4 && numbers[0] >= f64::from(callers), "{args:?}: {said}");
        }
        assert!(client.end() && server.end(), "{args:?}");
    }
}

#[test]
fn falsified_payload_ends_the_run() {
    for by in ["by=copy", "by=region"] {
        let place = Place::new(by);
        let Some((server, mut client)) = both(
            "falsified_payload_ends_the_run",
            &place,
            &["bytes=4096", by, "placement=adaptive"],
            &["corrupt=3"],
        ) else {
            return;
        };
        assert_eq!(client.ask(10_000), "failed: call 3: the server computed a different checksum");
        assert!(!client.end());
        assert!(server.end());
    }
}

#[test]
fn high_priority_process_completes_all_bursts() {
    let place = Place::new("priority");
    for by in ["by=thread", "by=timer"] {
        let mut low = Side::start("priority", &place.0, &["side=low", "--vps", "2"]);
        assert_eq!(low.hear(), "ready");
        let mut high =
            Side::start("priority", &place.0, &["side=high", "burst=100us", "rounds=5", by]);
        assert_eq!(high.hear(), "ready");
        let rows = [high.hear(), high.hear()];
        for (row, metric) in rows.iter().zip(["ready_p99 ", "done_p50 "]) {
            assert!(row.starts_with(metric), "{by}: {row}");
        }
        assert!(high.end() && low.end(), "{by}");
    }
}

#[test]
fn invalid_plan_is_an_error() {
    let place = Place::new("errors");
    for (bench, args) in [
        ("rpc", &["side=middle"][..]),
        ("rpc", &["side=server", "placement=anywhere"]),
        ("rpc", &["side=server", "bytes=65"]),
        ("priority", &["side=low", "burst=long"]),
        ("inversion", &["side=server", "inherit=perhaps"]),
    ] {
        let mut side = Side::start(bench, &place.0, args);
        let said = side.hear();
        assert!(said.contains("expected") || said.contains("only"), "{bench} {args:?}: {said}");
        assert!(!side.end(), "{bench} {args:?}");
    }
}
