//! Tests of `tls`, client and server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::program::{Folder, Server, output, run};

const TLS: &str = env!("CARGO_BIN_EXE_tls");

fn server(certificate: &str) -> (Server, String) {
    let mut server = Server::start(TLS, &["serve", "127.0.0.1:0", certificate]);
    let address = server.line();
    (server, address)
}

#[test]
fn words_are_echoed() {
    let folder = Folder::new("tls");
    let certificate = folder.file("certificate");
    let (_server, address) = server(&certificate);
    // Concurrent clients. The long text needs several TLS records.
    let long = "x".repeat(50_000);
    std::thread::scope(|s| {
        for words in ["some words", "other words", &long] {
            let (address, certificate) = (&address, &certificate);
            s.spawn(move || {
                assert_eq!(output(TLS, &["ask", address, certificate, words]), format!("{words}\n"))
            });
        }
    });
}

#[test]
fn untrusted_or_plain_servers_are_refused() {
    let folder = Folder::new("no-tls");
    let (own, other) = (folder.file("own"), folder.file("other"));
    let (mut first, address) = server(&own);
    let (_second, _) = server(&other);
    let asked = run(TLS, &["ask", &address, &other, "words"]);
    assert!(!asked.status.success() && asked.stderr.contains("certificate"), "{asked:?}");
    // No data, no handshake, and an incomplete handshake.
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(output(TLS, &["ask", &address, &own, "still there"]), "still there\n");
    assert!(first.is_up());
}
