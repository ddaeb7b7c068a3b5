//! Requests that are too large, too slow, or no requests.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use super::double::Folder;
use super::plain::{Reply, Web};

#[test]
fn oversized_and_malformed_requests_are_refused() {
    let folder = Folder::new("web-sizes");
    let web = Web::start(&folder);
    let host = format!("Host: {}\r\n", web.place);
    for (text, status) in [
        (format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(20_000)), 431),
        (format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(1 << 20)), 431),
        (format!("GET / HTTP/1.1\r\n{host}{}\r\n", "X: 1\r\n".repeat(100)), 431),
        (format!("POST /act HTTP/1.1\r\n{host}Content-Length: 20000\r\n\r\n"), 413),
        (format!("POST /act HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 501),
        (format!("POST /act HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n"), 400),
        (format!("GET http://{}/ HTTP/1.1\r\n{host}\r\n", web.place), 400),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), 505),
        ("\x16\x03\x01\x02\r\n\r\n".to_owned(), 400),
        ("SSH-2.0-OpenSSH\r\n\r\n".to_owned(), 400),
    ] {
        let reply = web.send(text.as_bytes());
        assert_eq!(reply.status, status, "{:.60}: {reply:?}", text);
        assert_eq!(reply.field("connection"), Some("close"));
    }
    // No request at all.
    drop(web.connect());
    web.sign_in();
}

#[test]
fn requests_of_a_connection_follow_each_other() {
    let folder = Folder::new("web-pipelined");
    let web = Web::start(&folder);
    let host = format!("Host: {}\r\n", web.place);
    let one = format!("GET /icon.svg HTTP/1.1\r\n{host}\r\n");
    let last = format!("GET /icon.svg HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
    let mut stream = web.connect();
    stream.write_all((one.clone() + &one + &last).as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
}

/// A client that sends a byte now and then gets no more time than another, and delays nobody.
#[test]
fn slow_request_is_ended_although_bytes_arrive() {
    let folder = Folder::new("web-slow");
    let web = Web::start(&folder);
    let session = web.sign_in();
    let begins = [
        format!("GET / HTTP/1.1\r\nHost: {}\r\nX: ", web.place),
        format!("POST /act HTTP/1.1\r\nHost: {}\r\nContent-Length: 9999\r\n\r\n", web.place),
    ];
    let slow = begins.map(|begin| {
        let mut stream = web.connect();
        stream.write_all(begin.as_bytes()).expect("sent");
        let from = stream.try_clone().expect("a descriptor");
        let drips = thread::spawn(move || {
            // Until the server has closed.
            while stream.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        (from, drips)
    });
    for _ in 0..20 {
        assert_eq!(session.get("/").status, 200);
    }
    for (from, drips) in slow {
        // Bytes that arrive after the answer may reset the connection before it was read.
        let reply = Reply::of(from);
        assert!(matches!(reply.status, 408 | 0), "{reply:?}");
        drips.join().expect("it ends");
    }
}
