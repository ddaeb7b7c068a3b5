//! Commands against real programs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use kumihimo_machine::handler::{Microprocess, Space, State};

use super::double::Folder;
use super::pty::{Controlling, Pty};

/// Returns whether the machine allows only the 1:1 mode, without steering. Reports `test` as
/// skipped then.
fn one_to_one(test: &str) -> bool {
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
