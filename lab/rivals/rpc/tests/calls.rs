//! Every transport in small: all callers get their replies, and a corrupted payload ends the run.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const TRANSPORTS: [&str; 9] = [
    "pipe",
    "unix-socket",
    "unix-mux",
    "unix-mux-states",
    "futex",
    "grpc-uds",
    "tarpc",
    "iceoryx2",
    "dbus",
];

/// A temporary directory in memory. Dropping it also removes the files that iceoryx2 creates beside
/// it.
struct Place(PathBuf);

impl Place {
    /// Creates a directory with a short name, because iceoryx2 uses it in names of sockets.
    fn new() -> Place {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let path = Path::new("/dev/shm").join(format!(
            "rival-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Relaxed)
        ));
        fs::create_dir(&path).expect("a directory");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("it was made");
        let beside = format!("{}_", self.0.file_name().expect("it has a name").to_string_lossy());
        for entry in fs::read_dir("/dev/shm").expect("it is there").flatten() {
            if entry.file_name().to_string_lossy().starts_with(&beside) {
                fs::remove_file(entry.path()).expect("an unused file");
            }
        }
    }
}

/// A server or a client with its output. The process has ended when this is dropped.
struct Side {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Side {
    fn start(side: &str, place: &Place, args: &[&str]) -> Side {
        Side::of("rpc", side, place, args)
    }

    fn of(bench: &str, side: &str, place: &Place, args: &[&str]) -> Side {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rival-rpc"));
        command
            .args([bench, &format!("side={side}"), &format!("place={}", place.0.display())])
            .args(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
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

/// Starts a server and its client; `None` if the transport is unavailable.
fn both(name: &str, args: &[&str], of_client: &[&str]) -> Option<(Place, Side, Side)> {
    let place = Place::new();
    let mut server = Side::start("server", &place, args);
    let said = server.hear();
    if said.starts_with("refused: ") {
        eprintln!("[skip] {name}: {said}");
        server.end();
        return None;
    }
    assert!(said.starts_with("ready"), "{name}: {said}");
    let mut client = Side::start("client", &place, &[args, of_client].concat());
    assert_eq!(client.hear(), "ready", "{name}");
    Some((place, server, client))
}

#[test]
fn every_caller_is_answered() {
    for transport in TRANSPORTS {
        for (callers, bytes) in [(1, 64), (5, 4096), (2, 1 << 20)] {
            let keys = [
                format!("transport={transport}"),
                format!("callers={callers}"),
                format!("bytes={bytes}"),
            ];
            let name = format!("{transport}-{callers}");
            let Some((place, server, mut client)) =
                both(&name, &keys.each_ref().map(String::as_str), &[])
            else {
                continue;
            };
            for _ in 0..2 {
                let said = client.ask(20);
                let numbers: Vec<f64> =
                    said.split(' ').filter_map(|word| word.parse().ok()).collect();
                assert_eq!(numbers.len(), 4, "{name}: {said}");
                assert!(numbers[0] >= f64::from(callers), "{name}: {said}");
            }
            assert!(client.end() && server.end(), "{name}");
            drop(place);
        }
    }
}

/// `tonic` needs certificates, which the benchmark makes.
#[test]
fn every_caller_of_another_machine_is_answered() {
    for transport in ["transport=tcp", "transport=tarpc"] {
        let (place, args) = (Place::new(), [transport, "callers=5"]);
        let mut server = Side::of("remote", "server", &place, &args);
        assert_eq!(server.hear(), "ready", "{transport}");
        let at = fs::read_to_string(place.0.join("address")).expect("the server has written it");
        let mut client =
            Side::of("remote", "client", &place, &[&args[..], &[&format!("to={at}")]].concat());
        assert_eq!(client.hear(), "ready", "{transport}");
        let said = client.ask(20);
        assert_eq!(said.split(' ').count(), 4, "{transport}: {said}");
        assert!(client.end() && server.end(), "{transport}");
    }
}

#[test]
fn falsified_payload_ends_the_run() {
    for transport in TRANSPORTS {
        for check in ["check=whole", "check=head"] {
            let name = format!("{transport}-falsified");
            let transport = format!("transport={transport}");
            let Some((_place, server, mut client)) =
                both(&name, &[&transport, check, "bytes=4096"], &["corrupt=3"])
            else {
                continue;
            };
            assert_eq!(
                client.ask(10_000),
                "failed: call 3: the server computed a different checksum",
                "{name}"
            );
            assert!(!client.end(), "{name}");
            assert!(server.end(), "{name}");
        }
    }
}

#[test]
fn unknown_words_are_errors() {
    let place = Place::new();
    for args in [
        &["transport=pigeon"][..],
        &[],
        &["transport=pipe", "placement=spin"],
        &["transport=futex", "placement=handoff"],
        &["transport=pipe", "bytes=65"],
    ] {
        let mut server = Side::start("server", &place, args);
        assert_eq!(server.hear(), "", "{args:?}");
        assert!(!server.end(), "{args:?}");
    }
}
