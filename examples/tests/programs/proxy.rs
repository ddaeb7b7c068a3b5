//! Tests of `proxy` between a client and a server in this process.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use crate::program::{Server, rest};

/// Starts a proxy to a listener in this process. Returns the server and both ends of a connection.
fn proxy(seconds: &str) -> (Server, TcpStream, TcpStream) {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let (server, address) = to(&upstream.local_addr().unwrap().to_string(), seconds);
    let client = TcpStream::connect(address).unwrap();
    let (accepted, _) = upstream.accept().unwrap();
    (server, client, accepted)
}

fn to(upstream: &str, seconds: &str) -> (Server, String) {
    let mut server =
        Server::start(env!("CARGO_BIN_EXE_proxy"), &["127.0.0.1:0", upstream, seconds]);
    let address = server.line();
    (server, address)
}

#[test]
fn closing_one_direction_leaves_the_other_open() {
    let (mut server, mut client, mut upstream) = proxy("3600");
    // More than all buffers on the way can hold, in both directions at once.
    let much = vec![7; 8 << 20];
    std::thread::scope(|s| {
        s.spawn(|| {
            (&client).write_all(&much).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        s.spawn(|| (&upstream).write_all(&much).unwrap());
        let received = s.spawn(|| {
            let mut all = Vec::new();
            (&upstream).read_to_end(&mut all).unwrap();
            all
        });
        let mut all = vec![0; much.len()];
        (&client).read_exact(&mut all).unwrap();
        assert!(all == much);
        assert!(received.join().unwrap() == much);
    });
    // The upward direction has ended, the downward direction continues.
    upstream.write_all(b"after that").unwrap();
    let mut last = [0; 10];
    client.read_exact(&mut last).unwrap();
    assert_eq!(&last, b"after that");
    upstream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&client), "");
    let done = server.line();
    assert!(
        done.ends_with(&format!(": {} bytes up, {} down", much.len(), much.len() + 10)),
        "{done}"
    );
}

#[test]
fn hundred_clients_are_forwarded_at_once() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_server, address) = to(&upstream.local_addr().unwrap().to_string(), "3600");
    let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let accepted: Vec<_> = clients.iter().map(|_| upstream.accept().unwrap().0).collect();
    for (n, mut client) in clients.iter().enumerate() {
        client.write_all(&[n as u8]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    }
    // Connections are accepted in any order.
    for mut stream in accepted {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    }
    for (n, mut client) in clients.iter().enumerate() {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, [n as u8]);
    }
}

#[test]
fn deadline_ends_silent_connections() {
    // The connection is established by the kernel, without accept(2).
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut server, address) = to(&upstream.local_addr().unwrap().to_string(), "0.05");
    assert_eq!(rest(TcpStream::connect(address).unwrap()), "");
    let said = server.line();
    assert!(said.ends_with(": timed out"), "{said}");
}

#[test]
fn reset_of_one_side_closes_the_other() {
    let (mut server, mut client, upstream) = proxy("3600");
    // Closing a socket with unread data resets the connection.
    client.write_all(b"never read").unwrap();
    upstream.peek(&mut [0]).unwrap();
    drop(upstream);
    let _ = client.read_to_end(&mut Vec::new());
    let said = server.line();
    assert!(said.contains("reset"), "{said}");
    assert!(server.is_up());
}

#[test]
fn missing_upstream_is_reported() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (mut server, address) = to(&closed.to_string(), "3600");
    assert_eq!(rest(TcpStream::connect(address).unwrap()), "");
    let said = server.line();
    assert!(said.contains("refused"), "{said}");
}
