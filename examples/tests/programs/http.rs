//! Tests of `http_server` and `http_client`, with each other and with other programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use kumihimo_tests::servers::is_installed;
use kumihimo_tests::skip;

use crate::program::{Server, output, rest, run};

const CLIENT: &str = env!("CARGO_BIN_EXE_http_client");
const TEXT: &str = "Hello from a microprocess!";
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 27\r\nConnection: keep-alive\r\n\r\nHello from a microprocess!\n";

/// Starts the server. Returns it with its URL and its address.
fn server() -> (Server, String, String) {
    let mut server = Server::start(env!("CARGO_BIN_EXE_http_server"), &["127.0.0.1:0"]);
    let url = server.line();
    let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    (server, url, address)
}

/// Sends the parts one by one, half-closes, and returns everything that is received.
fn exchange(address: &str, parts: &[&[u8]]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for part in parts {
        stream.write_all(part).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    rest(stream)
}

#[test]
fn server_answers_get_and_post() {
    let (_server, _, address) = server();
    assert_eq!(exchange(&address, &[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]), HELLO);
    // Byte by byte, and with bare line feeds.
    let bytes: Vec<_> = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".chunks(1).collect();
    assert_eq!(exchange(&address, &bytes), HELLO);
    assert_eq!(exchange(&address, &[b"GET / HTTP/1.1\nHost: x\n\n"]), HELLO);
    // Three pipelined requests, one of them with a body. The last one ends the connection.
    let three = exchange(
        &address,
        &[b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyHEAD /x HTTP/1.1\r\nHOST: x\r\nConnection: te, Close\r\n\r\nGET"],
    );
    let others = three.strip_prefix(HELLO).expect("the first answer");
    assert!(others.starts_with("HTTP/1.1 405 "), "{others}");
    assert!(others.ends_with("Content-Length: 14\r\nConnection: close\r\n\r\n"), "{others}");
    assert!(exchange(&address, &[b"GET / HTTP/1.0\r\n\r\n"]).contains("Connection: close\r\n"));
    // Two hundred concurrent clients.
    let streams: Vec<_> = (0..200).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for mut stream in &streams {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    for mut stream in &streams {
        let mut answer = vec![0; HELLO.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, HELLO.as_bytes());
    }
}

#[test]
fn server_rejects_invalid_requests() {
    let (mut server, _, address) = server();
    let long = [b"GET /".to_vec(), vec![b'x'; 10_000]].concat();
    let many = [&b"GET / HTTP/1.1\r\n"[..], &b"A: b\r\n".repeat(100), b"\r\n"].concat();
    let cases: [(&[u8], &str); 13] = [
        (b"GET /\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", "400"),
        (b"\xff\xfe / HTTP/1.1\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\nx", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\nx", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", "400"),
        (&many, "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", "413"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "501"),
        (b"GET / HTTP/2.0\r\n\r\n", "505"),
        (&long, "431"),
    ];
    for (request, status) in cases {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
    }
    // An empty and an incomplete request get no reply and do no harm.
    assert_eq!(exchange(&address, &[]), "");
    assert_eq!(exchange(&address, &[b"GET / HT"]), "");
    assert_eq!(exchange(&address, &[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]), HELLO);
    assert!(server.is_up());
}

#[test]
fn client_sends_requests_to_the_server() {
    let (_server, url, _) = server();
    let lines = output(CLIENT, &["3", &url, &url, &url]);
    assert_eq!(lines, format!("{url}: {TEXT}\n").repeat(9));
    let missing = run(CLIENT, &["1", &format!("{url}missing")]);
    assert!(!missing.status.success() && missing.stderr.contains("404"), "{missing:?}");
}

/// Sequential requests share one connection as long as the server keeps it open.
#[test]
fn client_reuses_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for wishes in [&["keep-alive", "close"][..], &["close"]] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for (n, wish) in wishes.iter().enumerate() {
                while !lines.next().unwrap().unwrap().is_empty() {}
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nConnection: {wish}\r\nContent-Length: 1\r\n\r\n{n}"
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    assert_eq!(output(CLIENT, &["3", &url]), format!("{url}: 0\n{url}: 1\n{url}: 0\n"));
    server.join().unwrap();
}

#[test]
fn client_reports_a_refused_connection() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = run(CLIENT, &["1", &format!("http://{closed}/")]);
    assert!(!refused.status.success() && refused.stderr.contains("refused"), "{refused:?}");
}

#[test]
fn server_answers_curl() {
    if !is_installed("curl") {
        return skip("server_answers_curl", "no curl: apt-get install curl");
    }
    let (_server, url, _) = server();
    let twice = output(
        "curl",
        &[
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "--write-out",
            "%{num_connects} %{http_code}\n",
            &url,
            &url,
        ],
    );
    // The second request reuses the connection of the first.
    assert_eq!(twice, format!("{TEXT}\n1 200\n{TEXT}\n0 200\n"));
}
