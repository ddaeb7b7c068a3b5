//! The programs of the book's first part, each with a real client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use kumihimo_tests::process::{finish, send_signal};
use kumihimo_tests::skip;
use rustix::process::{Resource, Signal, getrlimit};

use crate::program::{Server, output};

const LIMITS: &str = env!("CARGO_BIN_EXE_start_4_limits");

/// The connections that the last step is about.
const MANY: u64 = 10_000;

/// Descriptors that each program needs beside its connections.
const OTHERS: u64 = 500;

/// The address behind `listening on `.
fn address(server: &mut Server) -> String {
    let line = server.line();
    line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned()
}

fn echoes(address: &str) {
    let mut streams: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    for (n, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&[n as u8; 5_000]).unwrap();
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        let mut reply = [0; 5_000];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [n as u8; 5_000]);
    }
}

#[test]
fn hello_prints_one_line_for_each_worker() {
    let printed = output(env!("CARGO_BIN_EXE_start_1_hello"), &[]);
    let lines: Vec<_> = printed.lines().collect();
    let hellos = (1..=4).map(|n| format!("hello from worker {n}")).collect::<Vec<_>>();
    assert_eq!(lines[..4], hellos[..], "{printed}");
    assert!(lines[4].starts_with("threads here are "), "{printed}");
}

#[test]
fn many_are_alive_at_once_and_all_send_their_numbers() {
    let printed = output(env!("CARGO_BIN_EXE_start_2_many"), &[]);
    assert!(printed.starts_with("10000 microprocesses are alive after "), "{printed}");
    assert!(printed.ends_with("the sum of their numbers is 50005000\n"), "{printed}");
}

#[test]
fn echo_server_serves_many_clients_at_once() {
    let mut server = Server::start(env!("CARGO_BIN_EXE_start_3_echo"), &["127.0.0.1:0"]);
    echoes(&address(&mut server));
    assert!(server.is_up());
}

#[test]
fn server_with_limits_drains_on_interrupt() {
    let mut server = Server::start(LIMITS, &["127.0.0.1:0"]);
    let address = address(&mut server);
    echoes(&address);
    // A silent client, which draining does not wait for.
    let mut silent = TcpStream::connect(&address).unwrap();
    silent.write_all(b"x").unwrap();
    silent.read_exact(&mut [0]).unwrap();
    send_signal(server.pid(), Signal::INT).unwrap();
    assert!(server.line().starts_with("draining "));
    assert_eq!(server.line(), "served 51 connections, refused 0");
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
}

/// `program` with as many descriptors as this user may have.
fn with_descriptors<'a>(program: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["-c", "ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\"", program], arguments].concat()
}

#[test]
fn ten_thousand_clients_have_their_replies() {
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let count = MANY.min(allowed.saturating_sub(OTHERS));
    if count < MANY {
        skip(
            "ten_thousand_clients_have_their_replies",
            &format!("{count} connections in place of {MANY}: ulimit -Hn is {allowed}"),
        );
    }
    let mut server = Server::start("sh", &with_descriptors(LIMITS, &["127.0.0.1:0"]));
    let address = address(&mut server);
    let count = count.to_string();
    let clients = env!("CARGO_BIN_EXE_start_5_clients");
    let printed = output("sh", &with_descriptors(clients, &[&address, &count]));
    assert!(printed.starts_with("all connections are open\n"), "{printed}");
    assert!(printed.contains(&format!("{count} clients had 3 replies each")), "{printed}");
    send_signal(server.pid(), Signal::INT).unwrap();
    assert!(server.line().starts_with("draining "));
    assert_eq!(server.line(), format!("served {count} connections, refused 0"));
}

#[test]
fn client_without_a_server_fails_at_once() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut clients = Command::new(env!("CARGO_BIN_EXE_start_5_clients"));
    clients.args([&closed.to_string(), "50"]).stdout(std::process::Stdio::piped());
    let clients = clients.stderr(std::process::Stdio::piped()).spawn().expect("it begins");
    let ended = finish("start_5_clients", clients);
    assert!(!ended.status.success() && ended.stderr.contains("refused"), "{ended:?}");
}

#[test]
fn busy_program_ends_after_its_time() {
    assert_eq!(output(env!("CARGO_BIN_EXE_busy"), &["1"]), "");
}
