//! Append logs that are damaged, or that a server with other limits has written. A start never
//! loses data: it replays everything, or it refuses and leaves the file unchanged.

mod beside;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use beside::{Folder, KV, Reply, Served, encoded, text};

fn start(log: &Path) -> Served {
    Served::start(&["--append-log", &text(log), "--sync", "always"])
}

fn output(args: &[&str]) -> Output {
    Command::new(KV).args(args).output().expect("it starts")
}

/// The output of a server that must not start. One that starts is killed.
fn refusal(log: &str) -> Output {
    let mut child = Command::new(KV)
        .args(["--listen", "127.0.0.1:0", "--append-log", log])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = [0; 1];
    if child.stdout.as_mut().expect("a pipe").read(&mut line).expect("a pipe") > 0 {
        child.kill().expect("a child");
    }
    child.wait_with_output().expect("it ends")
}

/// Asserts that a server refuses to start with `bytes` as its log, that it names the damage at
/// `good` and the command for the repair, and that it leaves the file unchanged.
fn assert_refused(log: &Path, bytes: &[u8], good: usize) {
    std::fs::write(log, bytes).expect("a file");
    let path = text(log);
    let output = refusal(&path);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(&format!("{path}: damaged at byte {good}: ")), "{said}");
    assert!(said.contains(&format!("kumi serve kv --repair {path}")), "{said}");
    assert!(std::fs::read(log).expect("the log") == bytes, "the file has changed: {said}");
}

/// Repairs the log, whose first `good` bytes are intact, and returns the saved bytes.
fn repaired(log: &Path, good: usize) -> Vec<u8> {
    let output = output(&["--repair", &text(log)]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("bytes removed"), "{output:?}");
    assert_eq!(std::fs::metadata(log).expect("the log").len(), good as u64);
    let saved = format!("{}.dropped-{good}", log.display());
    assert!(said.contains(&saved), "{said}");
    let bytes = std::fs::read(&saved).expect("the removed bytes");
    std::fs::remove_file(saved).expect("a file");
    bytes
}

#[test]
fn smaller_maxmemory_loses_no_logged_key() {
    let folder = Folder::new("smaller");
    let log = folder.file("log");
    let server = start(&log);
    let mut client = server.client();
    let value = "x".repeat(10_000);
    for i in 0..100 {
        assert_eq!(client.ask(&["set", &format!("key:{i}"), &value]), Reply::ok());
    }
    server.kill();
    let length = std::fs::metadata(&log).expect("the log").len();
    let server = Served::start(&["--append-log", &text(&log), "--maxmemory", "400k"]);
    let mut client = server.client();
    assert_eq!(client.ask(&["dbsize"]), Reply::integer(100));
    assert_eq!(client.ask(&["get", "key:99"]), Reply::bulk(&value));
    // The limit applies to new data.
    let oom = Reply::error("OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(client.ask(&["set", "more", &value]), oom);
    assert_eq!(std::fs::metadata(&log).expect("the log").len(), length);
}

#[test]
fn damage_in_front_or_in_the_middle_refuses_to_start() {
    let folder = Folder::new("middle");
    let log = folder.file("log");
    let records: Vec<_> = ["a", "b", "c"].map(|key| encoded(&["set", key, "12345"])).to_vec();
    let length = records[0].len();
    for damaged in 0..3 {
        for (from, to) in [
            // A kind, a count, a length that is too short, one that is too long, and one that is
            // longer than the file.
            ("*3", "+3"),
            ("*3", "*2"),
            ("*3", "*9"),
            ("$5", "$4"),
            ("$5", "$6"),
            ("$5", "$9999"),
            ("set", "get"),
            ("set", "s\0t"),
            ("set", "sey"),
        ] {
            if ["*9", "$6", "$9999"].contains(&to) && damaged == 2 {
                // Nothing distinguishes these from a command that a crash has cut off.
                continue;
            }
            let mut bytes = records.clone();
            let record = String::from_utf8(bytes[damaged].clone()).expect("text");
            bytes[damaged] = record.replace(from, to).into_bytes();
            let bytes = bytes.concat();
            assert_refused(&log, &bytes, damaged * length);
            assert_eq!(repaired(&log, damaged * length), bytes[damaged * length..]);
            let server = start(&log);
            assert_eq!(server.client().ask(&["dbsize"]), Reply::integer(damaged as i64));
        }
    }
}

#[test]
fn malformed_tail_refuses_to_start() {
    let folder = Folder::new("corrupt");
    let log = folder.file("log");
    let good = encoded(&["set", "a", "1"]);
    for tail in [
        &b"*1\r\n:5\r\n"[..],
        b"hello\r\n",
        b"no line end",
        b"*1\r\n$4\r\nNOPE\r\n",
        b"*1\r\n$3\r\nGET\r\n",
        b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\nx",
    ] {
        let bytes = [&good, tail].concat();
        let incr = tail.ends_with(b"x");
        let at = good.len() + if incr { tail.len() - 1 } else { 0 };
        assert_refused(&log, &bytes, at);
        assert_eq!(repaired(&log, at), bytes[at..]);
        let server = start(&log);
        let value = if incr { "2" } else { "1" };
        assert_eq!(server.client().ask(&["get", "a"]), Reply::bulk(value));
    }
}

#[test]
fn file_that_is_no_log_stays_unchanged() {
    let folder = Folder::new("no-log");
    let file = folder.file("notes.txt");
    assert_refused(&file, b"a file of somebody else", 0);
    assert_refused(&file, b"a file\nof somebody else\n", 0);
}

#[test]
fn zeros_at_the_end_are_cut_off() {
    let folder = Folder::new("zeros");
    let log = folder.file("log");
    let good = encoded(&["set", "a", "1"]);
    for begun in [&b""[..], b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$9\r\nx"] {
        // A crash of the machine may leave blocks of the file unwritten.
        let bytes = [&good, begun, &[0; 70_000]].concat();
        std::fs::write(&log, &bytes).expect("a file");
        let server = start(&log);
        let mut client = server.client();
        assert_eq!(client.ask(&["get", "a"]), Reply::bulk("1"));
        assert_eq!(client.ask(&["set", "b", "2"]), Reply::ok());
        server.kill();
        let server = start(&log);
        let both = [Reply::bulk("1"), Reply::bulk("2")];
        assert_eq!(server.client().ask(&["mget", "a", "b"]).members(), both);
    }
}

#[test]
fn commands_that_change_no_data_do_not_run_from_a_log() {
    let folder = Folder::new("shutdown");
    let log = folder.file("log");
    let good = encoded(&["set", "a", "1"]);
    for command in [
        // Before the log was checked, the first one stopped the server.
        &["shutdown"][..],
        &["shutdown", "nosave"],
        &["client", "kill", "type", "normal"],
        &["publish", "news", "x"],
        &["subscribe", "news"],
        &["quit"],
        &["blpop", "queue", "0"],
        // A time that is relative to an unknown moment.
        &["expire", "a", "100000"],
        &["set", "a", "1", "px", "100000"],
    ] {
        let bytes = [good.clone(), encoded(command), good.clone()].concat();
        assert_refused(&log, &bytes, good.len());
    }
}

#[test]
fn repair_reports_an_intact_log_and_refuses_what_it_may_not_change() {
    let folder = Folder::new("repair");
    let log = folder.file("log");
    let server = start(&log);
    server.client().ask(&["set", "a", "1"]);
    let path = text(&log);
    let refused = output(&["--repair", &path]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("another process writes it"), "{said}");
    server.kill();
    let bytes = std::fs::read(&log).expect("the log");
    let intact = output(&["--repair", &path]);
    let said = String::from_utf8_lossy(&intact.stdout);
    assert!(intact.status.success() && said.contains("intact: 2 commands"), "{intact:?}");
    assert_eq!(std::fs::read(&log).expect("the log"), bytes);
    // The bytes of an earlier repair are not overwritten.
    std::fs::write(&log, [&bytes[..], b"damage"].concat()).expect("a file");
    let kept = folder.file(&format!("log.dropped-{}", bytes.len()));
    std::fs::write(&kept, "earlier").expect("a file");
    let refused = output(&["--repair", &path]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("File exists"), "{said}");
    assert_eq!(std::fs::read(&kept).expect("the file"), b"earlier");
    assert_eq!(std::fs::metadata(&log).expect("the log").len() as usize, bytes.len() + 6);
    let nothing = output(&["--repair", &text(&folder.file("nothing"))]);
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert!(!nothing.status.success() && said.contains("No such file"), "{said}");
    assert!(!folder.file("nothing").exists());
}
