//! Runs a test in two processes with a temporary run-time directory: a server and a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use kumihimo_tests::place::Place;
use kumihimo_tests::process::{finish, start};

/// A server process, killed when dropped.
pub struct Server {
    pub child: Child,
}

impl Server {
    /// Starts the process and waits until it serves.
    pub fn start(name: &str, place: &Place, environment: &[(&str, &str)]) -> Server {
        let all: Vec<_> = [("KUMI_DIR", place.path()), ("KUMI_TEST_SIDE", "server")]
            .into_iter()
            .chain(environment.iter().copied())
            .collect();
        let mut child = start(name, &all);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("serving") {
            line.clear();
            if lines.read_line(&mut line).expect("it writes") == 0 {
                let mut said = String::new();
                let _ = child.stderr.take().expect("a pipe").read_to_string(&mut said);
                panic!("the server of {name} ended before it served: {said}");
            }
        }
        child.stdout = Some(lines.into_inner());
        Server { child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the server process: reports that it serves, and waits until its input ends.
pub fn serve_on() {
    println!("serving");
    std::io::stdout().flush().expect("standard output is open");
    kumihimo::thread::blocking(|| {
        let _ = std::io::stdin().read(&mut [0]);
    });
}

/// Side of this process, if it belongs to a pair.
pub fn side(name: &str) -> Option<String> {
    if !kumihimo_tests::process::is_child(name) {
        return None;
    }
    std::env::var("KUMI_TEST_SIDE").ok()
}

/// Runs `server` and `client` in two processes. The client must succeed.
pub fn pair(name: &str, server: impl FnOnce(), client: impl FnOnce()) {
    pair_with(name, &[], server, client);
}

/// As [`pair`], with environment variables for both processes.
pub fn pair_with(
    name: &str,
    environment: &[(&str, &str)],
    server: impl FnOnce(),
    client: impl FnOnce(),
) {
    match side(name).as_deref() {
        Some("server") => return server(),
        Some(_) => return client(),
        None => {}
    }
    let place = Place::new(name);
    let _server = Server::start(name, &place, environment);
    let all: Vec<_> = [("KUMI_DIR", place.path()), ("KUMI_TEST_SIDE", "client")]
        .into_iter()
        .chain(environment.iter().copied())
        .collect();
    let ended = finish(name, start(name, &all));
    assert!(ended.status.success(), "{name}: {}", ended.told());
}
