//! The HTTP client and the HTTP server, with each other and with other peers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use kumihimo_tests::servers::is_installed;
use kumihimo_tests::skip;

use crate::held::{Held, failure};

const CLIENT: &str = env!("CARGO_BIN_EXE_unmodified_ureq");
const SERVER: &str = env!("CARGO_BIN_EXE_unmodified_tiny_http");
const COUNT: usize = 1_000;

/// Starts the server. Returns it with its address.
fn server() -> (Held, String) {
    let mut server = Held::start(SERVER, &["127.0.0.1:0"]);
    let address = server.line().strip_prefix("http://").expect("a URL").to_owned();
    (server, address)
}

/// The body of a reply.
fn get(address: &str, page: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    write!(stream, "GET {page} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("text");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
}

/// Waits until a thousand requests wait in the server, and checks its kernel threads.
fn assert_server_waits(server: &mut Held, address: &str) {
    let told = loop {
        let reply = get(address, "/waiting");
        let (waiting, threads) = reply.split_once(' ').expect("two numbers");
        if waiting == COUNT.to_string() {
            break threads.parse().expect("a number");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    server.assert_few_kernel_threads(told);
}

#[test]
fn curl_waits_with_a_thousand_requests_for_tiny_http() {
    const CLIENTS: usize = 4;
    if !is_installed("curl") {
        return skip(
            "curl_waits_with_a_thousand_requests_for_tiny_http",
            "no curl: apt-get install curl",
        );
    }
    let (mut server, address) = server();
    let each = COUNT / CLIENTS;
    // curl repeats a URL by a range of numbers. A fragment is not sent.
    let url = format!("http://{address}/wait#[1-{each}]");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-H", "Connection: close", "--parallel", "--parallel-immediate"]);
            curl.args(["--parallel-max", &each.to_string(), &url]);
            // It shows the progress of parallel transfers, even with -s.
            curl.stdout(Stdio::piped()).stderr(Stdio::null());
            curl.spawn().expect("it is installed")
        })
        .collect();
    assert_server_waits(&mut server, &address);
    assert_eq!(get(&address, "/go"), "1000");
    for client in clients {
        let ended = client.wait_with_output().expect("our child");
        assert!(ended.status.success(), "{}", ended.status);
        assert_eq!(String::from_utf8(ended.stdout).expect("text"), "let go".repeat(each));
    }
    server.kill();
}

#[test]
fn ureq_waits_with_a_thousand_requests_for_tiny_http() {
    let (mut server, address) = server();
    let mut client = Held::start(CLIENT, &[&address]);
    client.assert_waits("1000 waiting in recv");
    assert_server_waits(&mut server, &address);
    let rest = "Enter lets them go.\nAll replies are [\"let go\"].\n";
    assert_eq!(client.release(), rest);
    server.kill();
}

/// As the server, on one kernel thread: replies to `/wait` only after `/go`.
fn serve_on_one_thread(listener: &TcpListener) {
    let mut waiting = Vec::new();
    loop {
        let mut stream = listener.accept().expect("a connection").0;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a whole request");
            head.push(byte[0]);
        }
        if head.starts_with(b"GET /wait ") {
            waiting.push(stream);
        } else if head.starts_with(b"GET /waiting ") {
            reply(&mut stream, &format!("{} 1", waiting.len()));
        } else {
            assert!(head.starts_with(b"GET /go "));
            waiting.iter_mut().for_each(|stream| reply(stream, "let go"));
            return reply(&mut stream, "gone");
        }
    }
}

fn reply(stream: &mut TcpStream, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all((head + body).as_bytes()).expect("the client waits");
}

#[test]
fn thousand_requests_of_ureq_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // As the server does: a thousand connections come at once.
    rustix::net::listen(&listener, 4096).expect("it listens");
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || serve_on_one_thread(&listener));
    let mut client = Held::start(CLIENT, &[&address]);
    client.assert_waits("1000 waiting in recv");
    let rest = "Enter lets them go.\nAll replies are [\"let go\"].\n";
    assert_eq!(client.release(), rest);
    server.join().expect("no panic");
}

#[test]
fn missing_server_and_taken_address_are_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let trouble = failure(SERVER, &[&address]);
    assert!(trouble.contains("AddrInUse"), "{trouble}");
    drop(taken);
    let trouble = failure(CLIENT, &[&address]);
    assert!(trouble.contains("refused"), "{trouble}");
}
