//! A server that is slow for two reasons, and that shows them at its own HTTP endpoint: one
//! function computes too much, and a lock is held for too long.
//!
//! `cargo run --release -p kumihimo-examples --bin pprof_server [ADDRESS]`, and beside it
//! `go tool pprof http://127.0.0.1:8080/debug/pprof/profile?seconds=5`, or `kumi profile`.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::observe::{Profile, pprof};
use kumihimo::sync::{Mutex, PoisonError};
use kumihimo::thread::{self, Builder};

const HEAD_MAX: u64 = 8 << 10; // request line and headers, bytes
const SECONDS_MAX: f64 = 600.0;
const WRITERS: usize = 8;
/// For how long a writer holds the lock of the journal.
const HELD: Duration = Duration::from_millis(10);

/// Computes: the same amount of work for each round.
fn round(seed: u64, rounds: u64) -> u64 {
    (0..rounds * 50_000).fold(seed, |sum, n| sum.rotate_left(5) ^ n)
}

#[inline(never)]
fn parse(seed: u64) -> u64 {
    black_box(round(black_box(seed), 7))
}

#[inline(never)]
fn search(seed: u64) -> u64 {
    black_box(round(black_box(seed), 2))
}

#[inline(never)]
fn print(seed: u64) -> u64 {
    black_box(round(black_box(seed), 1))
}

/// Uses 70 % of its time in `parse`, 20 % in `search` and 10 % in `print`.
fn compute() {
    let mut sum = 1;
    loop {
        sum = print(search(parse(sum)));
    }
}

/// Writers of one journal, whose lock each of them holds for [`HELD`].
fn write_journal(journal: &Mutex<u64>) {
    loop {
        let mut entries = journal.lock().unwrap_or_else(PoisonError::into_inner);
        thread::sleep(HELD);
        *entries += 1;
    }
}

/// The profile that a path demands, as of Go's net/http/pprof.
fn demanded(target: &str) -> Result<Profile, &'static str> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let seconds = query.split('&').find_map(|pair| pair.strip_prefix("seconds="));
    let seconds: f64 = seconds.map_or(Ok(5.0), str::parse).map_err(|_| "400 Bad Request")?;
    if !(0.1..=SECONDS_MAX).contains(&seconds) {
        return Err("400 Bad Request");
    }
    let time = Duration::from_secs_f64(seconds);
    match path {
        "/debug/pprof/profile" => Ok(Profile::Cpu(time)),
        "/debug/pprof/waits" => Ok(Profile::OffCpu(time)),
        "/debug/pprof/stacks" => Ok(Profile::Stacks),
        _ => Err("404 Not Found"),
    }
}

/// Status and body of the answer to a request.
fn answer(head: &[u8]) -> (&'static str, Vec<u8>) {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if !matches!(request.parse(head), Ok(httparse::Status::Complete(_))) {
        return ("400 Bad Request", Vec::new());
    }
    if request.method != Some("GET") {
        return ("405 Method Not Allowed", Vec::new());
    }
    match demanded(request.path.unwrap_or("")).map(pprof) {
        Ok(Ok(file)) => ("200 OK", file),
        // Another profile is in progress, for example.
        Ok(Err(error)) => ("503 Service Unavailable", format!("{error}\n").into_bytes()),
        Err(status) => (status, Vec::new()),
    }
}

fn converse(mut to: &TcpStream) -> io::Result<()> {
    to.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut from = BufReader::new(to.take(HEAD_MAX));
    let mut head = Vec::new();
    while !head.ends_with(b"\n\r\n") && !head.ends_with(b"\n\n") {
        if from.read_until(b'\n', &mut head)? == 0 {
            break;
        }
    }
    let (status, body) = answer(&head);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    to.write_all(head.as_bytes())?;
    to.write_all(&body)
}

fn main() -> io::Result<()> {
    let listener =
        TcpListener::bind(std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:8080"))?;
    println!("http://{}/debug/pprof/profile", listener.local_addr()?);
    static JOURNAL: Mutex<u64> = Mutex::new(0);
    Builder::new().name("compute".into()).spawn(compute)?;
    for n in 1..=WRITERS {
        Builder::new().name(format!("writer-{n}")).spawn(|| write_journal(&JOURNAL))?;
    }
    loop {
        let (stream, _peer) = listener.accept()?;
        // Errors of one client do not affect the server.
        Builder::new().name("client".into()).spawn(move || drop(converse(&stream)))?;
    }
}
