//! Commands inside a container as Docker makes it by default.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use kumihimo_machine::handler::Microprocess;
use kumihimo_tests::container::{Container, DEFAULT, USER};

const NAME: &str = "container::ps_lists_a_server_of_the_same_container";

fn kumi(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumi"));
    command.args(arguments);
    command
}

/// Output of a command that must succeed and complain about nothing.
fn said_by(arguments: &[&str]) -> String {
    let ended = kumi(arguments).output().expect("kumi");
    let complaints = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && complaints.is_empty(), "{arguments:?}: {complaints}");
    String::from_utf8(ended.stdout).expect("text")
}

#[test]
fn ps_lists_a_server_of_the_same_container() {
    for (user, has_shared_memory) in [(0, true), (0, false), (USER, true), (USER, false)] {
        let container = Container { user, has_shared_memory, ..DEFAULT };
        container.run(NAME, serve_and_list, |_| {});
    }
}

fn serve_and_list() {
    let mut server = kumi(&["serve", "kv", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kumi");
    let mut said = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut said).expect("text");
    assert!(said.starts_with("listening "), "{said}");
    let process = format!("pid {}", server.id());
    let ps = said_by(&["ps"]);
    assert!(ps.contains(&process), "{ps}");
    let doctor = said_by(&["doctor"]);
    let quota = "150000 us in each 100000 us, 1.50 cores";
    assert!(doctor.contains(quota), "{doctor}");
    assert!(doctor.contains("pids.max of ") || doctor.contains("KUMI_KERNEL_THREADS)"), "{doctor}");
    let rows: Vec<Microprocess> = said_by(&["ps", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    // Where microprocesses are kernel threads, they cannot be steered.
    if !kumihimo_tests::process::is_one_to_one() {
        let one = rows.first().expect("a microprocess").id.to_string();
        said_by(&["suspend", &one]);
        said_by(&["resume", &one]);
    }
    server.kill().expect("it lives");
    server.wait().expect("it ends");
}
