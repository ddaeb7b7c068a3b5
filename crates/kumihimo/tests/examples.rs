//! The examples do what they say.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use kumihimo::net::TcpListener;
use kumihimo::thread;

#[path = "../examples/echo_server.rs"]
mod echo_server;
#[path = "../examples/http_hello.rs"]
mod http_hello;

/// Starts a server in a microprocess; it is cancelled at the end.
fn with_server(serve: fn(&TcpListener) -> std::io::Result<()>, client: impl FnOnce(SocketAddr)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(&listener));
    client(addr);
    server.cancel();
    assert!(server.join().is_err(), "the server ended by itself");
}

#[test]
fn echo_server_sends_back_what_arrives() {
    with_server(echo_server::serve, |addr| {
        let mut streams: Vec<_> = (0..20).map(|_| TcpStream::connect(addr).unwrap()).collect();
        for (i, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&[i as u8; 10_000]).unwrap();
        }
        for (i, stream) in streams.iter_mut().enumerate() {
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all, [i as u8; 10_000]);
        }
    });
}

/// Sends the parts one by one, then nothing more; gives everything that comes back.
fn exchange(addr: SocketAddr, parts: &[&[u8]]) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    for part in parts {
        stream.write_all(part).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    all
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 27\r\nConnection: keep-alive\r\n\r\nHello from a microprocess!\n";

#[test]
fn http_hello_answers() {
    with_server(http_hello::serve, |addr| {
        assert_eq!(exchange(addr, &[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]), HELLO);
        // In pieces.
        let bytes: Vec<_> = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".chunks(1).collect();
        assert_eq!(exchange(addr, &bytes), HELLO);
        // Three at once, one of them with a body; the last one ends the connection.
        let three = exchange(
            addr,
            &[b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyHEAD /x HTTP/1.1\r\nHOST: x\r\nConnection: close\r\n\r\nGET"],
        );
        let rest = three.strip_prefix(HELLO).expect("the first answer");
        assert!(rest.starts_with("HTTP/1.1 405 "), "{rest}");
        assert!(rest.ends_with("Content-Length: 14\r\nConnection: close\r\n\r\n"), "{rest}");
        assert!(exchange(addr, &[b"GET / HTTP/1.0\r\n\r\n"]).contains("Connection: close\r\n"));
        // Two hundred clients, a microprocess each.
        let streams: Vec<_> = (0..200).map(|_| TcpStream::connect(addr).unwrap()).collect();
        for mut stream in &streams {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        }
        for mut stream in &streams {
            let mut answer = vec![0; HELLO.len()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, HELLO.as_bytes());
        }
    });
}

#[test]
fn http_hello_refuses_what_it_should() {
    with_server(http_hello::serve, |addr| {
        let long = [b"GET /".to_vec(), vec![b'x'; 10_000]].concat();
        let cases: [(&[u8], &str); 10] = [
            (b"GET /\r\n\r\n", "400"),
            (b"GET / HTTP/1.1\r\n\r\n", "400"),
            (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", "400"),
            (b"\xff\xfe / HTTP/1.1\r\n\r\n", "400"),
            (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\nx", "400"),
            (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", "400"),
            (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", "413"),
            (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "501"),
            (b"GET / HTTP/2.0\r\n\r\n", "505"),
            (&long, "431"),
        ];
        for (request, status) in cases {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(request).unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
        }
        // Silence, and a request cut short: no answer, no harm.
        assert_eq!(exchange(addr, &[]), "");
        assert_eq!(exchange(addr, &[b"GET / HT"]), "");
        assert_eq!(exchange(addr, &[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]), HELLO);
    });
}
