//! Sockets inside a container.

use std::io::{Read, Write};

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::runtime::Runtime;
use kumihimo::thread;

use crate::in_each;

const CONNECTIONS: usize = 100;
const ROUNDS: u8 = 20;

#[test]
fn hundred_connections_are_echoed() {
    in_each("echo::hundred_connections_are_echoed", || {
        Runtime::builder().build().expect("a runtime").run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("its address");
            let server = thread::spawn(move || {
                let all: Vec<_> = (0..CONNECTIONS)
                    .map(|_| {
                        let (stream, _) = listener.accept().expect("a connection");
                        thread::spawn(move || echo(stream))
                    })
                    .collect();
                all.into_iter().for_each(|one| one.join().expect("no panic"));
            });
            let clients: Vec<_> = (0..CONNECTIONS)
                .map(|n| {
                    thread::spawn(move || {
                        let mut stream = TcpStream::connect(address).expect("it listens");
                        for round in 0..ROUNDS {
                            let sent = [n as u8, round, 1, 2, 3, 4, 5, 6];
                            stream.write_all(&sent).expect("it is open");
                            let mut got = [0; 8];
                            stream.read_exact(&mut got).expect("an echo");
                            assert_eq!(got, sent);
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|one| one.join().expect("no panic"));
            server.join().expect("no panic");
        });
    });
}

fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes).expect("it is open") {
            0 => return,
            n => stream.write_all(&bytes[..n]).expect("it is open"),
        }
    }
}
