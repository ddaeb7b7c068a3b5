//! Runs the examples as a user does, and checks what they depend on.

mod client;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use kumihimo_tests::process::{Ended, finish};
use kumihimo_tests::skip;

const SERVER: &str = env!("CARGO_BIN_EXE_http2_server");
const CLIENT: &str = env!("CARGO_BIN_EXE_http2_client");
const GRPC: &str = env!("CARGO_BIN_EXE_grpc");

/// A running server, killed when dropped.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    /// Starts the server. The kernel kills it when the calling thread ends.
    fn start() -> Server {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", SERVER, "127.0.0.1:0"])
            .env("KUMI_DIR", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv is installed");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        let address = line.trim_end().strip_prefix("http://").expect("an address").to_owned();
        Server { child, stdout, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut rest = String::new();
        let _ = self.stdout.read_to_string(&mut rest);
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let Ended { status, stdout, stderr } = run(program, arguments);
    assert!(status.success(), "{program} {arguments:?}: {status}\n{stdout}\n{stderr}");
    stdout
}

fn run(program: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(program, command.spawn().unwrap_or_else(|e| panic!("{program}: {e}")))
}

/// A thousand requests of one connection wait for each other: all are handled at once, and each
/// blocks. A wait in a handler takes no kernel thread: the server replies when it has 16 at most.
#[test]
fn thousand_blocking_handlers_run_at_once() {
    let server = Server::start();
    let said = output(CLIENT, &[&server.address, "/meet", "1000"]);
    let lines: Vec<_> = said.lines().collect();
    let [leader, "999 x 200 OK met"] = lines[..] else { panic!("{said}") };
    let threads = leader.strip_prefix("1 x 200 OK ").and_then(|line| line.split(' ').next());
    let threads: usize = threads.expect(leader).parse().expect("a number");
    assert!((1..=16).contains(&threads), "{said}");
}

#[test]
fn curl_speaks_http2_to_the_server() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("curl").is_file()) {
        return skip("curl_speaks_http2_to_the_server", "no curl: apt-get install curl");
    }
    let server = Server::start();
    let get = |path: &str, more: &[&str]| {
        let uri = format!("http://{}{path}", server.address);
        let mut arguments =
            vec!["-sS", "--http2-prior-knowledge", "-w", "%{http_version} %{http_code}"];
        arguments.extend(more);
        arguments.push(&uri);
        output("curl", &arguments)
    };
    assert_eq!(get("/sleep", &[]), "slept\n2 200");
    let long = "0123456789".repeat(20_000);
    let file = std::env::temp_dir().join(format!("kumihimo-curl-{}", std::process::id()));
    std::fs::write(&file, &long).unwrap();
    let data = format!("@{}", file.display());
    assert_eq!(get("/echo", &["--data-binary", &data]), format!("{long}2 200"));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(get("/nowhere", &[]), "2 404");
}

#[test]
fn tonic_serves_without_its_transport() {
    let said = output(GRPC, &[]);
    let expected = "the sum 55\nnumber 1 1\nnumber 2 2\nnumber 3 3\n\
                    OutOfRange: at most 1000\nUnimplemented: /demo.Numbers/Product\n";
    assert_eq!(said, expected);
}

#[test]
fn missing_server_is_reported() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = run(CLIENT, &[&closed.to_string(), "/", "1"]);
    assert!(!refused.status.success() && refused.stderr.contains("refused"), "{refused:?}");
}

/// What a package is built from: a line each, as `tokio v1.2.3 bytes,io-util,sync`.
fn built_from(package: &str) -> String {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["tree", "--locked", "--offline", "-p", package])
        .args(["-e", "normal", "--prefix", "none", "-f", "{p} {f}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let tree = command.output().expect("cargo");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).expect("text")
}

#[test]
fn default_features_bring_no_futures() {
    let packages = built_from("kumihimo");
    assert!(packages.lines().any(|line| line.starts_with("kumihimo-io v")), "{packages}");
    for unwanted in ["kumihimo-futures v", "futures-io v", "hyper v", "tokio v"] {
        assert!(!packages.lines().any(|line| line.starts_with(unwanted)), "{unwanted}");
    }
}

/// Neither Tokio's runtime nor its sockets are built into these programs.
#[test]
fn no_tokio_runtime_is_linked() {
    let packages = built_from("kumihimo-examples-hyper");
    let tokio = packages.lines().find(|line| line.starts_with("tokio v")).expect("below hyper");
    let features = tokio.split_whitespace().nth(2).unwrap_or_default().trim_matches(',');
    let features: Vec<_> = features.split(',').collect();
    assert!(features.contains(&"sync"), "the line has other words: {tokio}");
    for unwanted in ["rt", "rt-multi-thread", "net", "time", "fs", "process", "signal", "full"] {
        assert!(!features.contains(&unwanted), "{tokio}");
    }
    for unwanted in ["mio v", "hyper-util v", "async-io v", "socket2 v0.5"] {
        assert!(!packages.lines().any(|line| line.starts_with(unwanted)), "{unwanted}");
    }
}
