//! Tests of the command `kumi serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn serve_kv_prints_its_address_and_ends_on_request() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_kumi"))
        .args(["serve", "kv", "--listen", "127.0.0.1:0", "--maxmemory", "64m"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kumi");
    let mut said = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut said).expect("text");
    let address = said.trim_end().strip_prefix("listening ").expect("where it listens");
    let mut client = TcpStream::connect(address).expect("a listening socket");
    client.write_all(b"SET a 1\r\nINCR a\r\nSHUTDOWN\r\n").expect("it reads");
    let mut replies = String::new();
    client.read_to_string(&mut replies).expect("replies");
    assert_eq!(replies, "+OK\r\n:2\r\n");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn serve_kv_help_lists_every_option() {
    let output = Command::new(env!("CARGO_BIN_EXE_kumi"))
        .args(["serve", "kv", "--help"])
        .output()
        .expect("kumi");
    let help = String::from_utf8_lossy(&output.stdout);
    for option in [
        "--listen",
        "--unix",
        "--maxmemory",
        "--append-log",
        "--sync",
        "--max-connections",
        "everysec",
    ] {
        assert!(help.contains(option), "{option}: {help}");
    }
}
