//! Tests of `pprof_server`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use kumihimo::runtime::{Mode, mode};
use kumihimo_tests::skip;

use crate::program::Server;

/// Returns the status and the body of the answer to a request for `target`.
fn get(address: &str, target: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("a server");
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(answer[..end].to_vec()).expect("text");
    let status = head.lines().next().expect("a line").trim_start_matches("HTTP/1.1 ").to_owned();
    (status, answer.split_off(end + 4))
}

#[test]
fn endpoint_serves_profiles() {
    if mode() != Mode::Microprocesses {
        return skip("pprof::endpoint_serves_profiles", "microprocesses are kernel threads here");
    }
    let mut server = Server::start(env!("CARGO_BIN_EXE_pprof_server"), &["127.0.0.1:0"]);
    let url = server.line();
    let address = url.trim_start_matches("http://").split('/').next().expect("an address");
    let profile = |target: &str| {
        let (status, body) = get(address, target);
        assert_eq!(status, "200 OK", "{target}: {}", String::from_utf8_lossy(&body));
        assert_eq!(body[..2], [0x1f, 0x8b], "{target}: a gzipped file");
        body
    };
    let cpu = profile("/debug/pprof/profile?seconds=1");
    profile("/debug/pprof/waits?seconds=0.5");
    profile("/debug/pprof/stacks");
    for (target, want) in [
        ("/debug/pprof/profile?seconds=x", "400 Bad Request"),
        ("/debug/pprof/profile?seconds=1e9", "400 Bad Request"),
        ("/debug/pprof/heap", "404 Not Found"),
    ] {
        assert_eq!(get(address, target).0, want, "{target}");
    }
    // One profile at a time: of two, one is refused, or they came one after the other.
    let two = [(); 2].map(|()| {
        let address = address.to_owned();
        thread::spawn(move || get(&address, "/debug/pprof/profile?seconds=1"))
    });
    let answers = two.map(|one| one.join().expect("no panic"));
    assert!(answers.iter().any(|(status, _)| status == "200 OK"), "{answers:?}");
    for (status, body) in answers.iter().filter(|(status, _)| status != "200 OK") {
        assert_eq!(status, "503 Service Unavailable");
        assert!(String::from_utf8_lossy(body).contains("is being profiled already"));
    }

    let cpu = kumihimo_trace::pprof::read(&cpu).expect("a profile");
    assert!(cpu.string_table.iter().any(|text| text.contains("pprof_server::compute")));
}
