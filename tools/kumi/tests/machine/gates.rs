//! Gates and links of real processes, listed and ended by the command.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout};

use kumihimo::gate::Gate;
use kumihimo_machine::handler::{Microprocess, Resource};
use kumihimo_tests::process;

use super::double::Folder;

const NAME: &str = "gates::gates_and_links_are_listed_and_ended";
/// Prefix of a child's messages, because the test program also prints lines of its own.
const MARK: &str = "> ";

/// A child process with one side of a gate. The child runs this test program again.
struct Part {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Part {
    fn start(folder: &Folder, side: &str) -> Part {
        let place = folder.path().to_str().expect("text");
        let mut child = process::start(NAME, &[("KUMI_DIR", place), ("KUMI_TEST_SIDE", side)]);
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Part { child, lines }
    }

    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).expect("it writes") == 0 {
                let mut said = String::new();
                let _ = self.child.stderr.take().expect("a pipe").read_to_string(&mut said);
                panic!("it ended: {said}");
            }
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(line: &str) {
    println!("{MARK}{line}");
    std::io::stdout().flush().expect("standard output is open");
}

fn hear() {
    kumihimo::thread::blocking(|| {
        let _ = std::io::stdin().read(&mut [0]);
    });
}

fn server() {
    let holds = Gate::serve("holds", |n: u32| {
        say("it holds");
        kumihimo::thread::park();
        n
    });
    let holds = holds.expect("it serves");
    say("serving");
    say(&holds.wait().to_string());
    hear();
}

fn client() {
    let holds = Gate::<u32, u32>::connect("holds").expect("it is there");
    for _ in 0..2 {
        let named = kumihimo::thread::Builder::new().name("caller".into());
        let holds = holds.clone();
        let calls =
            named.spawn(move || holds.call(&1).expect_err("it is cut")).expect("there is room");
        say(&format!("{:?}", calls.join().expect("no panic").kind()));
        hear();
    }
}

/// Runs `kumi` and parses its JSON output.
fn all<T: serde::de::DeserializeOwned>(folder: &Folder, args: &[&str]) -> Vec<T> {
    let (code, said, complaints) = folder.kumi(args);
    assert_eq!((code, complaints.as_str()), (0, ""), "{args:?}");
    said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

#[test]
fn gates_and_links_are_listed_and_ended() {
    if process::is_child(NAME) {
        return if std::env::var("KUMI_TEST_SIDE").is_ok_and(|side| side == "server") {
            server()
        } else {
            client()
        };
    }
    if process::is_one_to_one() {
        return kumihimo_tests::skip(NAME, "microprocesses are kernel threads here");
    }
    let folder = Folder::new("gates");
    let mut server = Part::start(&folder, "server");
    assert_eq!(server.line(), "serving");
    let mut client = Part::start(&folder, "client");
    assert_eq!(server.line(), "it holds");
    let (server_pid, client_pid) = (server.child.id(), client.child.id());

    let gates: Vec<Resource> = all(&folder, &["resources", "--kind", "gate", "--json"]);
    assert_eq!(gates.len(), 1, "{gates:?}");
    assert_eq!(
        (&gates[0].names[..], gates[0].state.as_str()),
        (&["/gate/holds".to_owned()][..], "1 links, 1 handled, 0 wait")
    );
    let links: Vec<Resource> = all(&folder, &["resources", "--kind", "link", "--json"]);
    let ends = |how: &str| {
        links.iter().find(|link| link.state.starts_with(how)).map(|link| link.state.as_str())
    };
    let of_user = format!("of user {}: 1 under way", rustix::process::geteuid().as_raw());
    assert_eq!(
        ends("serves"),
        Some(format!("serves gate holds to process {client_pid} {of_user}").as_str())
    );
    assert_eq!(
        ends("calls"),
        Some(format!("calls gate holds of process {server_pid} {of_user}").as_str())
    );
    let (_, said, _) = folder.kumi(&["resources", "--named"]);
    assert!(said.contains("/gate/holds") && said.contains(&gates[0].id.to_string()), "{said}");
    // The gate's microprocess, and the caller that waits for the server.
    let rows: Vec<Microprocess> = all(&folder, &["ps", "--json"]);
    let named = |name: &str| rows.iter().find(|row| row.name.as_deref() == Some(name));
    assert!(named("gate holds").is_some(), "{rows:?}");
    let space = gates[0].id.location().space();
    let waits = named("caller").and_then(|row| row.waits_for.clone());
    assert_eq!(waits, Some(format!("address space {space}, through a gate")));

    // End the link, which the client notices, and then the gate.
    let link = links
        .iter()
        .find(|link| link.state.starts_with("serves"))
        .expect("as above")
        .id
        .to_string();
    let (code, said, complaints) = folder.kumi(&["cancel", &link]);
    assert_eq!((code, complaints.as_str()), (0, ""), "{said}");
    assert_eq!(client.line(), "Gone");
    writeln!(client.child.stdin.as_mut().expect("a pipe")).expect("it lives");
    assert_eq!(server.line(), "it holds");
    let gate = gates[0].id.to_string();
    let (code, _, complaints) = folder.kumi(&["suspend", &gate]);
    assert!(code == 1 && complaints.contains(&gate), "{complaints}");
    let (code, said, complaints) = folder.kumi(&["cancel", &gate]);
    assert_eq!((code, complaints.as_str()), (0, ""), "{said}");
    assert!(said.starts_with(&format!("{gate}: ")), "{said}");
    assert_eq!(server.line(), "gate \"holds\" was ended from outside, by its id");
    assert_eq!(client.line(), "Gone");
    let (code, _, complaints) = folder.kumi(&["cancel", &gate]);
    assert!(code == 1 && complaints.contains("ended"), "{complaints}");
}
