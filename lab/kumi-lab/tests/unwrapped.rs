//! `unwrapped` in small: every workload with its peer as a process. The tests check that the work
//! was done, not times.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const KUMI: &str = env!("CARGO_BIN_EXE_kumi-lab");
const METRICS: [&str; 9] = [
    "wall",
    "cpu",
    "kernel_threads",
    "switches",
    "handoffs",
    "changes",
    "looks",
    "clock_p50",
    "clock_p99",
];

/// A peer, which ends with its standard input.
struct Peer(Child);

impl Peer {
    /// Starts a peer. Returns it with its output.
    fn start(kind: &str) -> (Peer, String) {
        let mut command = Command::new(KUMI);
        command.args(["bench-peer", kind]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("kumi");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut said).expect("a line");
        (Peer(child), said.trim().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let ended = self.0.wait();
        if !std::thread::panicking() {
            assert!(ended.expect("our child").success());
        }
    }
}

/// Runs a workload under an event source. Returns its output, or the reason why this machine
/// refuses it.
fn run(line: &str, events: &str, more: &[String]) -> Result<String, String> {
    run_with(line, events, more, &[])
}

/// The same with additional environment variables.
fn run_with(
    line: &str,
    events: &str,
    more: &[String],
    with: &[(&str, &OsStr)],
) -> Result<String, String> {
    let mut command = Command::new(KUMI);
    command.args([
        "bench-child",
        "--variant",
        "full",
        "--queue",
        "ring",
        "unwrapped",
        "--vps",
        "2",
    ]);
    command.args(line.split(' ')).args(more).arg(format!("events={events}"));
    let output =
        command.env("KUMI_EVENTS", events).envs(with.iter().copied()).output().expect("kumi");
    let complaint = String::from_utf8_lossy(&output.stderr);
    match complaint.split_once("refused: ") {
        Some((_, why)) if !output.status.success() => Err(why.to_owned()),
        _ => {
            assert!(output.status.success(), "{line} {events}: {complaint}");
            Ok(String::from_utf8(output.stdout).expect("text"))
        }
    }
}

fn check(name: &str, peer: Option<&str>, line: &str) {
    let peer = peer.map(Peer::start);
    let port = match &peer {
        None => Vec::new(),
        Some((_, said)) => match said.strip_prefix("ready ") {
            Some(port) => vec![port.to_owned()],
            None => return kumihimo_tests::skip(name, said),
        },
    };
    // One source that reports blocks and returns, and one that reports only blocks.
    for events in ["bpf", "watch"] {
        let rows = match run(line, events, &port) {
            Ok(rows) => rows,
            Err(why) => {
                kumihimo_tests::skip(name, &format!("events={events}: {why}"));
                continue;
            }
        };
        let metrics: Vec<_> = rows.lines().filter_map(|row| row.split(' ').next()).collect();
        assert_eq!(metrics, METRICS, "{line}");
        let work = line.split(' ').next().expect("a word");
        assert!(
            rows.lines().all(|row| row.contains(work) && row.contains(&format!("events={events}"))),
            "{rows}"
        );
    }
}

#[test]
fn redis_replies_are_read() {
    check("redis_replies_are_read", Some("redis"), "work=redis count=20 rounds=5");
}

#[test]
fn redis_replies_are_read_beside_a_higher_level() {
    check(
        "redis_replies_are_read_beside_a_higher_level",
        Some("redis"),
        "work=levels count=20 rounds=20",
    );
}

/// Number of scheduling steps with different levels, from the report of `kumi trace check`. Without
/// such steps, the report proves nothing about priorities.
fn steps_with_different_levels(report: &str) -> Option<u64> {
    let (before, _) = report.split_once(" scheduling steps with levels that differ")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// Waits outside of the runtime do not change the order of priorities.
#[test]
fn levels_row_keeps_the_order_of_priorities() {
    let name = "levels_row_keeps_the_order_of_priorities";
    let (_peer, said) = Peer::start("redis");
    let Some(port) = said.strip_prefix("ready ") else { return kumihimo_tests::skip(name, &said) };
    let own = |name: &str| {
        std::env::temp_dir().join(format!("kumihimo-levels-{}.{name}", std::process::id()))
    };
    // A separate board: with a shared one, the check would need the traces of other tests'
    // processes.
    let (trace, board) = (own("json"), own("board"));
    for events in ["bpf", "perf", "watch"] {
        let more = [port.to_owned()];
        let lab = kumihimo_config::lab_with("trace_buffer=1000000");
        let traced = [
            ("KUMI_TRACE", trace.as_os_str()),
            ("KUMI_LAB", lab.as_ref()),
            ("KUMI_ARBITER", board.as_os_str()),
        ];
        match run_with("work=levels count=20 rounds=20", events, &more, &traced) {
            Err(why) => kumihimo_tests::skip(name, &format!("events={events}: {why}")),
            Ok(_) => {
                let checked =
                    Command::new(KUMI).args(["trace", "check"]).arg(&trace).output().expect("kumi");
                let said = String::from_utf8_lossy(&checked.stdout);
                assert!(
                    checked.status.success() && said.trim().ends_with("holds"),
                    "events={events}: {said}"
                );
                let steps = steps_with_different_levels(&said);
                assert!(steps.is_some_and(|steps| steps > 0), "events={events}: {said}");
                std::fs::remove_file(&trace).expect("it was written");
                std::fs::remove_file(&board).expect("it was shared");
            }
        }
    }
}

#[test]
fn http_requests_are_answered() {
    check("http_requests_are_answered", Some("http"), "work=http count=10 rounds=20");
}

#[test]
fn late_answers_are_waited_for() {
    check("late_answers_are_waited_for", Some("long"), "work=long count=40 limit=30 ms=50");
}

#[test]
fn late_answers_are_waited_for_by_a_crate() {
    let name = "late_answers_are_waited_for_by_a_crate";
    check(name, Some("long"), "work=ureq count=40 ms=50");
}

#[test]
fn crates_use_connections_of_kumihimo() {
    let name = "crates_use_connections_of_kumihimo";
    for (peer, work) in [
        ("redis", "work=redis count=20 rounds=5"),
        ("http", "work=http count=10 rounds=20"),
        ("long", "work=ureq count=40 ms=50"),
    ] {
        check(name, Some(peer), &format!("{work} connections=kumihimo"));
    }
}

#[test]
fn works_without_a_peer_complete() {
    let name = "works_without_a_peer_complete";
    for line in [
        "work=pipe count=2 rounds=20",
        "work=mix every=4 count=2 rounds=21",
        "work=full count=12 limit=8 ms=20",
        "work=mutex count=2 rounds=20",
        "work=fault count=2 rounds=5",
    ] {
        check(name, None, line);
    }
}

#[test]
fn unknown_work_is_an_error() {
    let mut command = Command::new(KUMI);
    command.args([
        "bench-child",
        "--variant",
        "full",
        "--queue",
        "ring",
        "unwrapped",
        "work=none-such",
    ]);
    let output = command.output().expect("kumi");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("work=none-such: unknown workload"),
        "{said}"
    );
}
