//! Commands against real programs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use kumihimo_machine::handler::{Microprocess, Space, State};

use super::double::Folder;
use super::pty::{Controlling, Pty};

/// Returns whether the machine allows only the 1:1 mode, without steering. Reports `test` as
/// skipped then.
pub fn one_to_one(test: &str) -> bool {
    // Only one runtime can exist at a time.
    static ONCE: OnceLock<bool> = OnceLock::new();
    let skip = *ONCE.get_or_init(kumihimo_tests::process::is_one_to_one);
    if skip {
        kumihimo_tests::skip(test, "microprocesses are kernel threads here");
    }
    skip
}

/// A running `kumi serve kv`, whose microprocesses wait for connections.
struct Server(Child);

impl Server {
    fn start(folder: &Folder) -> Server {
        Server::start_with(folder, &[])
    }

    fn start_with(folder: &Folder, environment: &[(&str, &str)]) -> Server {
        let mut server = folder
            .command(&["serve", "kv", "--listen", "127.0.0.1:0", "--maxmemory", "64m"])
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kumi");
        let mut said = String::new();
        BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut said).expect("text");
        assert!(said.starts_with("listening "), "{said}");
        Server(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rows(folder: &Folder) -> Vec<Microprocess> {
    let (code, said, complaints) = folder.kumi(&["ps", "--json"]);
    assert_eq!((code, complaints.as_str()), (0, ""));
    said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

#[test]
fn server_can_be_listed_and_steered() {
    if one_to_one("server_can_be_listed_and_steered") {
        return;
    }
    let folder = Folder::new("real");
    let server = Server::start(&folder);
    let (code, said, complaints) = folder.kumi(&["ps"]);
    assert_eq!((code, complaints.as_str()), (0, ""), "{said}");
    assert!(said.contains(&format!("pid {}", server.0.id())), "{said}");
    let one = rows(&folder)
        .into_iter()
        .find(|row| row.state == State::Waiting)
        .expect("one waits for connections");
    let id = one.id.to_string();
    let (code, said, complaints) = folder.kumi(&["suspend", &id]);
    assert_eq!((code, complaints.as_str()), (0, ""), "{said}");
    // The microprocess stops at once or at its next opportunity.
    let suspended = || {
        rows(&folder)
            .into_iter()
            .any(|row| row.id == one.id && (row.state == State::Suspended || row.stopping))
    };
    assert!(suspended());
    for args in [
        &["backtrace", &id][..],
        &["priority", "40", &id],
        &["resume", &id],
        &["resources"],
        &["metrics"],
    ] {
        let (code, said, complaints) = folder.kumi(args);
        assert!(
            code == 0 && complaints.is_empty() && !said.is_empty(),
            "{args:?}: {said}{complaints}"
        );
    }
    assert!(!suspended());
    let row = rows(&folder).into_iter().find(|row| row.id == one.id).expect("it lives");
    assert_eq!(row.priority, 40);
}

#[test]
fn top_prints_rows_groups_and_histograms_once() {
    if one_to_one("top_prints_rows_groups_and_histograms_once") {
        return;
    }
    let folder = Folder::new("real-once");
    let server = Server::start(&folder);
    let lines = |args: &[&str]| -> Vec<serde_json::Value> {
        let (code, said, complaints) = folder.kumi(&[&["top", "--json"], args].concat());
        assert_eq!((code, complaints.as_str()), (0, ""));
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let all = lines(&["--sort", "id"]);
    let totals = &all[0]["space"];
    assert_eq!(totals["pid"], server.0.id());
    assert_eq!(totals["living"], all.len() - 1, "{all:?}");
    assert_eq!(totals["matching"], totals["living"]);
    assert!(totals["cpu"].is_number() && totals["switch_rate"].is_number(), "{totals}");
    assert_eq!(totals["vps"][0]["wake_latency"].as_array().map(Vec::len), Some(32));
    let row =
        all[1..].iter().map(|line| &line["microprocess"]).find(|row| row["state"] == "waiting");
    let row = row.expect("one waits");
    assert!(row["waiting_ns"].is_u64() && row["stack_bytes"].is_u64(), "{row}");
    assert!(row["switches"].as_u64() > Some(0) && row["cpu"].is_number(), "{row}");

    let filtered = lines(&["--filter", "WAITING", "--limit", "1"]);
    assert_eq!(filtered.len(), 2);
    assert_eq!(lines(&["--filter", "no such text"])[0]["space"]["matching"], 0);
    let count = |by: &str| -> u64 {
        let groups = lines(&["--group", by, "--limit", "1000"]);
        assert_eq!(groups[0]["space"]["groups"], groups.len() - 1);
        groups[1..].iter().map(|line| line["group"]["count"].as_u64().expect("a number")).sum()
    };
    assert_eq!((count("waits-for"), count("name")), (all.len() as u64 - 1, all.len() as u64 - 1));
    assert!(count("stack") > 0);

    let pid = server.0.id().to_string();
    let (code, said, complaints) = folder.kumi(&["top", "--once", "--histograms", &pid]);
    assert_eq!((code, complaints.as_str()), (0, ""));
    assert!(
        said.contains("WAITS-FOR") && said.contains("VP 0: time from wake-up to run"),
        "{said}"
    );
    let (code, by_pid, _) = folder.kumi(&["ps", &pid]);
    assert!(code == 0 && by_pid.starts_with("address space 1: "), "{by_pid}");
}

#[test]
fn exact_accounting_ends_with_the_command() {
    if one_to_one("exact_accounting_ends_with_the_command") {
        return;
    }
    let folder = Folder::new("real-exact");
    let _server = Server::start(&folder);
    for (args, exact) in [(&["--exact"][..], true), (&[], false)] {
        let (code, said, _) = folder.kumi(&[&["top", "--json"], args].concat());
        assert_eq!(code, 0);
        let totals: serde_json::Value =
            serde_json::from_str(said.lines().next().expect("totals")).expect("JSON");
        assert_eq!(totals["space"]["exact"], exact, "{totals}");
    }
}

#[test]
fn top_shows_a_running_server() {
    if one_to_one("top_shows_a_running_server") {
        return;
    }
    let folder = Folder::new("real-top");
    let server = Server::start(&folder);
    let mut pty = Pty::start(&folder, &["top", "--every", "100"], (100, 30), Controlling::Yes);
    pty.until(|screen| screen.contains(&server.0.id().to_string()) && screen.contains("waiting"));
    // `kumi top` finds the server's counters by their names.
    pty.until(|screen| {
        let row = screen.lines().find(|line| line.contains(" kumi ")).unwrap_or_default();
        row.split_whitespace().skip(6).take(3).all(|rate| rate != "-") && screen.contains("VP 0")
    });
    drop(server);
    pty.until_shown("0 address spaces");
    pty.send("q");
    assert_eq!(pty.wait().code(), Some(0));
}

#[test]
fn running_server_can_be_traced() {
    if one_to_one("running_server_can_be_traced") {
        return;
    }
    let folder = Folder::new("real-trace");
    let (its, ours) = (folder.path().join("its"), folder.path().join("ours"));
    let (its, ours) = (its.to_str().expect("text"), ours.to_str().expect("text"));
    let server = Server::start_with(&folder, &[("KUMI_TRACE", its)]);
    let (_, said, _) = folder.kumi(&["ps", "--spaces", "--json"]);
    let space: Space = serde_json::from_str(&said).expect("one");
    let number = space.id.location().space().to_string();
    let (code, _, complaints) = folder.kumi(&["trace", "live", &number, "-o", ours]);
    assert!(code == 0, "{complaints}");
    let (code, said, complaints) = folder.kumi(&["trace", "check", ours]);
    assert!(code == 0 && said.ends_with("holds\n"), "{said}{complaints}");
    // The server continues to run.
    assert!(!rows(&folder).is_empty());
    drop(server);
}
