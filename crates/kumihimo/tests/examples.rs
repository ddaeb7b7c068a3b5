//! The examples do what they say.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use kumihimo::net::TcpListener;
use kumihimo::thread;

#[path = "../examples/echo_server.rs"]
mod echo_server;

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
