//! Connections that end early, on either side.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::{CLIENT, Server, output};

/// Bad bytes, and connections that are closed in the middle, end themselves and nothing else.
#[test]
fn broken_connections_leave_others_alone() {
    let server = Server::start();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for n in 0..preface.len() {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(&preface[..n]).unwrap();
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut all = Vec::new();
    // hyper answers with a GOAWAY frame or closes; a reset is as good.
    let _ = stream.read_to_end(&mut all);
    // A client that leaves while its requests are handled.
    for _ in 0..3 {
        let mut client = std::process::Command::new(CLIENT)
            .args([&*server.address, "/sleep", "200"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        client.kill().unwrap();
        client.wait().unwrap();
    }
    assert_eq!(output(CLIENT, &[&server.address, "/sleep", "50"]), "50 x 200 OK slept\n");
}
